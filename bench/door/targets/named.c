/* The probes of sdt.c by <nopal.h>, which vouches for the pointers of its strings. */
#define _GNU_SOURCE
#include "harness.h"
#include <nopal.h>

static const char text20[] = "a string of 20 bytes";

MODE(run_u2, NOPAL_PROBE(door, u2, NOPAL_ARG(uint64_t, a, i), NOPAL_ARG(uint64_t, b, i + n_hits)))
MODE(run_str, NOPAL_PROBE(door, str, NOPAL_STR(s, text20), NOPAL_ARG(uint64_t, a, i)))

static const struct mode modes[] = { { "u2", run_u2 }, { "str", run_str } };

int main(void)
{
	return obey(modes, sizeof modes / sizeof *modes);
}
