/* <lttng/ust-fork.h>: what a program calls around fork() and the like. nopal follows a program's children by itself; the
   functions are there for programs that were written for LTTng, and change nothing.

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef _LTTNG_UST_FORK_H
#define _LTTNG_UST_FORK_H 1

#include <signal.h>

#include "ust-config.h"

#ifdef __cplusplus
extern "C" {
#endif

void lttng_ust_before_fork(sigset_t *saved);
void lttng_ust_after_fork_parent(sigset_t *saved);
void lttng_ust_after_fork_child(sigset_t *saved);

void lttng_ust_after_setns(void);
void lttng_ust_after_unshare(void);

void lttng_ust_after_setuid(void);
void lttng_ust_after_seteuid(void);
void lttng_ust_after_setreuid(void);
void lttng_ust_after_setresuid(void);
void lttng_ust_after_setgid(void);
void lttng_ust_after_setegid(void);
void lttng_ust_after_setregid(void);
void lttng_ust_after_setresgid(void);

#ifdef __cplusplus
}
#endif

#if LTTNG_UST_COMPAT_API(0)
# define ust_before_fork lttng_ust_before_fork
# define ust_after_fork_parent lttng_ust_after_fork_parent
# define ust_after_fork_child lttng_ust_after_fork_child
# define ust_after_setns lttng_ust_after_setns
# define ust_after_unshare lttng_ust_after_unshare
# define ust_after_setuid lttng_ust_after_setuid
# define ust_after_seteuid lttng_ust_after_seteuid
# define ust_after_setreuid lttng_ust_after_setreuid
# define ust_after_setresuid lttng_ust_after_setresuid
# define ust_after_setgid lttng_ust_after_setgid
# define ust_after_setegid lttng_ust_after_setegid
# define ust_after_setregid lttng_ust_after_setregid
# define ust_after_setresgid lttng_ust_after_setresgid
#endif

#endif
