/* LTTng-UST reads this file several times; the guards are as its manual wants them. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER door

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./ust_events.h"

#if !defined(UST_EVENTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define UST_EVENTS_H
#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(door, u2,
	LTTNG_UST_TP_ARGS(uint64_t, a, uint64_t, b),
	LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint64_t, a, a)
			    lttng_ust_field_integer(uint64_t, b, b)))

LTTNG_UST_TRACEPOINT_EVENT(door, str,
	LTTNG_UST_TP_ARGS(const char *, s, uint64_t, a),
	LTTNG_UST_TP_FIELDS(lttng_ust_field_string(s, s)
			    lttng_ust_field_integer(uint64_t, a, a)))

#endif
#include <lttng/tracepoint-event.h>
