/* <lttng/ust-config.h>: which LTTng-UST the headers in this folder stand in for.

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef _LTTNG_UST_CONFIG_H
#define _LTTNG_UST_CONFIG_H 1

/* Version 2.13 has the APIs 0 (2.0 to 2.12) and 1. A program that defines LTTNG_UST_COMPAT_API_VERSION as 1 does not want
   the short names of the old one. */
#define LTTNG_UST_MAJOR_VERSION 2
#define LTTNG_UST_MINOR_VERSION 13
#define LTTNG_UST_PATCHLEVEL_VERSION 0

#ifdef LTTNG_UST_COMPAT_API_VERSION
# define LTTNG_UST_COMPAT_API(n) (LTTNG_UST_COMPAT_API_VERSION <= (n))
#else
# define LTTNG_UST_COMPAT_API(n) 1
#endif

#endif
