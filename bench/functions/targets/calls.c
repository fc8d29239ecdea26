/* A function that does next to nothing, for the benchmark of functions. Holds no probes. */
#define _GNU_SOURCE
#include "harness.h"

static volatile uint64_t sink;

/* Begins with a push, as most functions do: the kernel does that itself, and need not step over it. */
__attribute__((noinline, noipa)) uint64_t fun_work(uint64_t i)
{
	__asm__ volatile("" : : : "rbx");
	sink = i;
	return i * 3;
}

MODE(run_none, __asm__ volatile("" : : "r"(i)))
MODE(run_call, (void)fun_work(i))

static const struct mode modes[] = { { "none", run_none }, { "call", run_call } };

int main(void)
{
	return obey(modes, sizeof modes / sizeof *modes);
}
