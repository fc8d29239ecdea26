/* <lttng/tracepoint-event.h>: the last line of a provider's header, outside of its guard.

   Does nothing unless the file that reads the header asks for the provider's code:

   LTTNG_UST_TRACEPOINT_CREATE_PROBES          the functions that evaluate the fields
   LTTNG_UST_TRACEPOINT_DEFINE                 the probes: sites, notes, semaphores
   LTTNG_UST_TRACEPOINT_PROBE_DYNAMIC_LINKAGE  beside DEFINE: the functions come from a library that is loaded later

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#include "tracepoint.h"

#if LTTNG_UST_COMPAT_API(0)
# if defined TRACEPOINT_CREATE_PROBES && !defined LTTNG_UST_TRACEPOINT_CREATE_PROBES
#  define LTTNG_UST_TRACEPOINT_CREATE_PROBES
# endif
# if defined TRACEPOINT_DEFINE && !defined LTTNG_UST_TRACEPOINT_DEFINE
#  define LTTNG_UST_TRACEPOINT_DEFINE
# endif
# if defined TRACEPOINT_PROBE_DYNAMIC_LINKAGE && !defined LTTNG_UST_TRACEPOINT_PROBE_DYNAMIC_LINKAGE
#  define LTTNG_UST_TRACEPOINT_PROBE_DYNAMIC_LINKAGE
# endif
#endif

#if _NOPAL_TP_ON && !defined LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ \
    && (defined LTTNG_UST_TRACEPOINT_CREATE_PROBES || defined LTTNG_UST_TRACEPOINT_DEFINE)
# include "ust-tracepoint-event.h"
#endif
