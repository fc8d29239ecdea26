/* <lttng/tracelog.h>: tracef() with a level. There is one probe for each: lttng_ust_tracelog:TRACE_ERR and so on, with the
   fields line, file, func and msg. The level is one of the names in tracepoint.h, spelled out.

     lttng_ust_tracelog(LTTNG_UST_TRACEPOINT_LOGLEVEL_ERR, "%s: %m", path);

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef _LTTNG_TRACELOG_H
#define _LTTNG_TRACELOG_H 1

#pragma GCC system_header

#include <stdarg.h>

#include "tracepoint.h"

#ifdef __cplusplus
extern "C" {
#endif

void __nopal_tracelog(int level, const char *file, int line, const char *func, const char *format, ...)
  __attribute__((__format__(__printf__, 5, 6)));
void __nopal_vtracelog(int level, const char *file, int line, const char *func, const char *format, va_list args)
  __attribute__((__format__(__printf__, 5, 0)));

#ifdef __cplusplus
}
#endif

#define lttng_ust_tracelog(level, ...)					\
  do {									\
    if (_NOPAL_TP_IS_ENABLED(lttng_ust_tracelog, _NOPAL_LOG_##level))	\
      __nopal_tracelog((int) level, __FILE__, __LINE__, __func__, __VA_ARGS__);	\
  } while (0)
#define lttng_ust_vtracelog(level, format, args)			\
  do {									\
    if (_NOPAL_TP_IS_ENABLED(lttng_ust_tracelog, _NOPAL_LOG_##level))	\
      __nopal_vtracelog((int) level, __FILE__, __LINE__, __func__, format, args); \
  } while (0)

#define _NOPAL_LOG_LTTNG_UST_TRACEPOINT_LOGLEVEL_EMERG TRACE_EMERG
#define _NOPAL_LOG_LTTNG_UST_TRACEPOINT_LOGLEVEL_ALERT TRACE_ALERT
#define _NOPAL_LOG_LTTNG_UST_TRACEPOINT_LOGLEVEL_CRIT TRACE_CRIT
#define _NOPAL_LOG_LTTNG_UST_TRACEPOINT_LOGLEVEL_ERR TRACE_ERR
#define _NOPAL_LOG_LTTNG_UST_TRACEPOINT_LOGLEVEL_WARNING TRACE_WARNING
#define _NOPAL_LOG_LTTNG_UST_TRACEPOINT_LOGLEVEL_NOTICE TRACE_NOTICE
#define _NOPAL_LOG_LTTNG_UST_TRACEPOINT_LOGLEVEL_INFO TRACE_INFO
#define _NOPAL_LOG_LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_SYSTEM TRACE_DEBUG_SYSTEM
#define _NOPAL_LOG_LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_PROGRAM TRACE_DEBUG_PROGRAM
#define _NOPAL_LOG_LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_PROCESS TRACE_DEBUG_PROCESS
#define _NOPAL_LOG_LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_MODULE TRACE_DEBUG_MODULE
#define _NOPAL_LOG_LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_UNIT TRACE_DEBUG_UNIT
#define _NOPAL_LOG_LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_FUNCTION TRACE_DEBUG_FUNCTION
#define _NOPAL_LOG_LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_LINE TRACE_DEBUG_LINE
#define _NOPAL_LOG_LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG TRACE_DEBUG

#if LTTNG_UST_COMPAT_API(0)
# define tracelog lttng_ust_tracelog
# define vtracelog lttng_ust_vtracelog
# define _NOPAL_LOG_TRACE_EMERG TRACE_EMERG
# define _NOPAL_LOG_TRACE_ALERT TRACE_ALERT
# define _NOPAL_LOG_TRACE_CRIT TRACE_CRIT
# define _NOPAL_LOG_TRACE_ERR TRACE_ERR
# define _NOPAL_LOG_TRACE_WARNING TRACE_WARNING
# define _NOPAL_LOG_TRACE_NOTICE TRACE_NOTICE
# define _NOPAL_LOG_TRACE_INFO TRACE_INFO
# define _NOPAL_LOG_TRACE_DEBUG_SYSTEM TRACE_DEBUG_SYSTEM
# define _NOPAL_LOG_TRACE_DEBUG_PROGRAM TRACE_DEBUG_PROGRAM
# define _NOPAL_LOG_TRACE_DEBUG_PROCESS TRACE_DEBUG_PROCESS
# define _NOPAL_LOG_TRACE_DEBUG_MODULE TRACE_DEBUG_MODULE
# define _NOPAL_LOG_TRACE_DEBUG_UNIT TRACE_DEBUG_UNIT
# define _NOPAL_LOG_TRACE_DEBUG_FUNCTION TRACE_DEBUG_FUNCTION
# define _NOPAL_LOG_TRACE_DEBUG_LINE TRACE_DEBUG_LINE
# define _NOPAL_LOG_TRACE_DEBUG TRACE_DEBUG
#endif

#endif
