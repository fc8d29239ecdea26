/* USDT probes. Built twice: with nopal's <sys/sdt.h>, whose sites are a nop and a 10-byte nop, and with systemtap's, whose
   sites are one nop, as in every program that a distribution ships. */
#define _GNU_SOURCE
#include "harness.h"
#include <sys/sdt.h>

static const char text20[] = "a string of 20 bytes";
_Static_assert(sizeof text20 == 21, "20 bytes and a NUL");

MODE(run_none, (void)n_hits)
MODE(run_u2, DTRACE_PROBE2(door, u2, i, i + n_hits))
MODE(run_str, DTRACE_PROBE2(door, str, text20, i))

static const struct mode modes[] = { { "none", run_none }, { "u2", run_u2 }, { "str", run_str } };

int main(void)
{
	return obey(modes, sizeof modes / sizeof *modes);
}
