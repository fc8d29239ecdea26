/* The probes of lttng_ust_tracef() and lttng_ust_tracelog(). The provider of all is named in each, so that one file can
   hold both.

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER lttng_ust_tracef

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "messages.h"

#if !defined MESSAGES_H || defined LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ
#define MESSAGES_H

#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(lttng_ust_tracef, event,
  LTTNG_UST_TP_ARGS(const char *, msg, unsigned int, length),
  LTTNG_UST_TP_FIELDS(lttng_ust_field_sequence_text(char, msg, msg, unsigned int, length)))
LTTNG_UST_TRACEPOINT_LOGLEVEL(lttng_ust_tracef, event, LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG)

#undef LOG_ARGS
#define LOG_ARGS								\
  LTTNG_UST_TP_ARGS(const char *, file, int, line, const char *, func, const char *, msg, unsigned int, length)

LTTNG_UST_TRACEPOINT_EVENT_CLASS(lttng_ust_tracelog, log, LOG_ARGS,
  LTTNG_UST_TP_FIELDS(
    lttng_ust_field_integer(int, line, line)
    lttng_ust_field_string(file, file)
    lttng_ust_field_string(func, func)
    lttng_ust_field_sequence_text(char, msg, msg, unsigned int, length)))

#undef LOG_LEVEL
#define LOG_LEVEL(level)							\
  LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(lttng_ust_tracelog, log, lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_##level, \
					  LOG_ARGS) \
  LTTNG_UST_TRACEPOINT_LOGLEVEL(lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_##level, \
				LTTNG_UST_TRACEPOINT_LOGLEVEL_##level)
LOG_LEVEL(EMERG)
LOG_LEVEL(ALERT)
LOG_LEVEL(CRIT)
LOG_LEVEL(ERR)
LOG_LEVEL(WARNING)
LOG_LEVEL(NOTICE)
LOG_LEVEL(INFO)
LOG_LEVEL(DEBUG_SYSTEM)
LOG_LEVEL(DEBUG_PROGRAM)
LOG_LEVEL(DEBUG_PROCESS)
LOG_LEVEL(DEBUG_MODULE)
LOG_LEVEL(DEBUG_UNIT)
LOG_LEVEL(DEBUG_FUNCTION)
LOG_LEVEL(DEBUG_LINE)
LOG_LEVEL(DEBUG)

#endif

#include <lttng/tracepoint-event.h>
