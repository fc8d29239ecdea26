/* Programs are recorded from their first event on by a recorder that waits for them: whatever has probes knocks when it is
   loaded, and goes on when it is let in. Where nobody waits this takes a few microseconds. The recorder's side is
   tracer/nopal-proc/src/start_gate.rs.

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Recorders of one user that can wait at a time; how long to wait where one does not answer. */
enum { PLACES = 4, PATIENCE_MS = 3000 };

/* Whether a signal or a debugger has stopped the process, so that it would not answer. */
static int is_stopped(pid_t pid)
{
  char path[32], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int) pid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return 0;
  ssize_t bytes = read(file, text, sizeof text - 1);
  close(file);
  if (bytes <= 0)
    return 0;
  text[bytes] = 0;
  /* The name may hold anything. */
  const char *state = strrchr(text, ')');
  return state && strlen(state) > 2 && (state[2] == 'T' || state[2] == 't');
}

/* A connection to a recorder that waits at this place, or -1. */
static int knock(uid_t owner, int place)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "nopal-start-%u-%d", (unsigned) owner, place);
  int door = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (door < 0)
    return -1;
  socklen_t bytes = offsetof(struct sockaddr_un, sun_path) + 1 + length;
  struct ucred recorder;
  socklen_t size = sizeof recorder;
  if (!connect(door, (struct sockaddr *) &address, bytes)
      && !getsockopt(door, SOL_SOCKET, SO_PEERCRED, &recorder, &size)
      /* The name could be somebody else's, who would have us wait for nothing. */
      && recorder.uid == owner && !is_stopped(recorder.pid))
    return door;
  close(door);
  return -1;
}

static long long now_ms(void)
{
  struct timespec now = { 0 };
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Waits until all have closed their ends, but no longer than for one of them, whatever signals come. */
static void wait_for(struct pollfd *doors, int n_doors)
{
  long long end = now_ms() + PATIENCE_MS;
  for (int n_left = n_doors; n_left > 0; ) {
    long long left = end - now_ms();
    if (left <= 0)
      return;
    if (poll(doors, n_doors, (int) left) < 0 && errno != EINTR)
      return;
    n_left = 0;
    for (int each = 0; each < n_doors; each++) {
      if (doors[each].revents && doors[each].fd >= 0) {
        close(doors[each].fd);
        doors[each].fd = -1;
      }
      doors[each].revents = 0;
      n_left += doors[each].fd >= 0;
    }
  }
}

static int count_loaded(struct dl_phdr_info *object, size_t size, void *count)
{
  (void) size;
  *(unsigned long long *) count = object->dlpi_adds;
  return 1;
}

void __nopal_lttng_start(void)
{
  static unsigned long long n_knocked;
  unsigned long long n_loaded = 0;
  dl_iterate_phdr(count_loaded, &n_loaded);
  /* Several files of one program have probes; what is loaded later knocks again. */
  if (n_loaded == n_knocked)
    return;
  n_knocked = n_loaded;
  /* Not for programs that run for others, nor in a sandbox, which may forbid sockets. */
  if (getauxval(AT_SECURE) || prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 0)
    return;
  int error = errno;
  uid_t owner = geteuid();
  struct pollfd doors[2 * PLACES];
  int n_doors = 0;
  for (int place = 0; place < 2 * PLACES; place++) {
    if (place >= PLACES && owner == 0)
      break;
    int door = knock(place < PLACES ? owner : 0, place % PLACES);
    if (door >= 0)
      doors[n_doors++] = (struct pollfd) { .fd = door, .events = POLLIN };
  }
  wait_for(doors, n_doors);
  for (int each = 0; each < n_doors; each++)
    if (doors[each].fd >= 0)
      close(doors[each].fd);
  errno = error;
}
