/* lttng_ust_tracef() and lttng_ust_tracelog(), called only while somebody traces them.

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#define _GNU_SOURCE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "messages.h"

#include <errno.h>
#include <lttng/tracef.h>
#include <lttng/tracelog.h>
#include <stdio.h>
#include <stdlib.h>

/* A program that traces after a failed call may still want to look at its errno. */
#define FORMATTED(format, args, text, length, use)				\
  do {										\
    int saved = errno;								\
    char *text;									\
    int length = vasprintf(&text, format, args);				\
    if (length >= 0) {								\
      use;									\
      free(text);								\
    }										\
    errno = saved;								\
  } while (0)

void __nopal_vtracef(const char *format, va_list args)
{
  FORMATTED(format, args, text, length,
	    lttng_ust_do_tracepoint(lttng_ust_tracef, event, text, (unsigned int) length));
}

void __nopal_tracef(const char *format, ...)
{
  va_list args;
  va_start(args, format);
  __nopal_vtracef(format, args);
  va_end(args);
}

static void log_at(int level, const char *file, int line, const char *func, const char *text, unsigned int length)
{
  switch (level) {
#define AT(level)								\
  case LTTNG_UST_TRACEPOINT_LOGLEVEL_##level:					\
    lttng_ust_do_tracepoint(lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_##level, file, line, func, text, length); \
    break;
  AT(EMERG)
  AT(ALERT)
  AT(CRIT)
  AT(ERR)
  AT(WARNING)
  AT(NOTICE)
  AT(INFO)
  AT(DEBUG_SYSTEM)
  AT(DEBUG_PROGRAM)
  AT(DEBUG_PROCESS)
  AT(DEBUG_MODULE)
  AT(DEBUG_UNIT)
  AT(DEBUG_FUNCTION)
  AT(DEBUG_LINE)
  AT(DEBUG)
  }
}

void __nopal_vtracelog(int level, const char *file, int line, const char *func, const char *format, va_list args)
{
  FORMATTED(format, args, text, length, log_at(level, file, line, func, text, (unsigned int) length));
}

void __nopal_tracelog(int level, const char *file, int line, const char *func, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  __nopal_vtracelog(level, file, line, func, format, args);
  va_end(args);
}
