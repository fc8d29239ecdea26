/* What programs call around fork(): nothing has to be done there.

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#include <lttng/ust-fork.h>

/* The set is the program's, which hands it back after the fork and looks at it nowhere else. */
void lttng_ust_before_fork(sigset_t *saved) { sigemptyset(saved); }
void lttng_ust_after_fork_parent(sigset_t *saved) { (void) saved; }
void lttng_ust_after_fork_child(sigset_t *saved) { (void) saved; }

void lttng_ust_after_setns(void) {}
void lttng_ust_after_unshare(void) {}
void lttng_ust_after_setuid(void) {}
void lttng_ust_after_seteuid(void) {}
void lttng_ust_after_setreuid(void) {}
void lttng_ust_after_setresuid(void) {}
void lttng_ust_after_setgid(void) {}
void lttng_ust_after_setegid(void) {}
void lttng_ust_after_setregid(void) {}
void lttng_ust_after_setresgid(void) {}
