/* <lttng/ust-version.h>: see ust-config.h.

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef _LTTNG_UST_VERSION_H
#define _LTTNG_UST_VERSION_H 1

#include "ust-config.h"

#endif
