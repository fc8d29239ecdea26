/* <lttng/tracef.h>: a tracepoint as short as a printf(). The probe is lttng_ust_tracef:event, its field `msg`.

     lttng_ust_tracef("%d clients", n);

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef _LTTNG_TRACEF_H
#define _LTTNG_TRACEF_H 1

#pragma GCC system_header

#include <stdarg.h>

#include "tracepoint.h"

#ifdef __cplusplus
extern "C" {
#endif

void __nopal_tracef(const char *format, ...) __attribute__((__format__(__printf__, 1, 2)));
void __nopal_vtracef(const char *format, va_list args) __attribute__((__format__(__printf__, 1, 0)));

#ifdef __cplusplus
}
#endif

#define lttng_ust_tracef(...)						\
  do {									\
    if (_NOPAL_TP_IS_ENABLED(lttng_ust_tracef, event))			\
      __nopal_tracef(__VA_ARGS__);					\
  } while (0)
#define lttng_ust_vtracef(format, args)					\
  do {									\
    if (_NOPAL_TP_IS_ENABLED(lttng_ust_tracef, event))			\
      __nopal_vtracef(format, args);					\
  } while (0)

#if LTTNG_UST_COMPAT_API(0)
# define tracef lttng_ust_tracef
# define vtracef lttng_ust_vtracef
#endif

#endif
