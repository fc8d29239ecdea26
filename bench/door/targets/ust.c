/* LTTng-UST tracepoints of the same shapes as the probes of sdt.c. */
#define _GNU_SOURCE
#include "harness.h"
#include "ust_events.h"

static const char text20[] = "a string of 20 bytes";

MODE(run_u2, lttng_ust_tracepoint(door, u2, i, i + n_hits))
MODE(run_str, lttng_ust_tracepoint(door, str, text20, i))

static const struct mode modes[] = { { "u2", run_u2 }, { "str", run_str } };

int main(void)
{
	return obey(modes, sizeof modes / sizeof *modes);
}
