/* Spans for the benchmark of answers: a begin and an end with nothing between them, once as two probes, once as a function. */
#define _GNU_SOURCE
#include "harness.h"
#include <sys/sdt.h>

/* What a tracer of functions sees. */
__attribute__((noinline)) void ans_work(uint64_t i)
{
	__asm__ volatile("" : : "r"(i));
}

MODE(run_none, (void)n_hits)
MODE(run_pair, DTRACE_PROBE1(ans, work__start, i); DTRACE_PROBE1(ans, work__done, i))
MODE(run_call, ans_work(i))

static const struct mode modes[] = { { "none", run_none }, { "pair", run_pair }, { "call", run_call } };

int main(void)
{
	return obey(modes, sizeof modes / sizeof *modes);
}
