/* Probes in a library that a program loads later (LTTNG_UST_TRACEPOINT_PROBE_DYNAMIC_LINKAGE): when the library comes, its
   functions are entered where the program's tracepoints look for them; before it goes they are withdrawn. The program need
   not be linked with anything; its tracepoints are found by notes in its memory (docs/formats.md, section 3).

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#define _GNU_SOURCE
#include <link.h>
#include <lttng/tracepoint.h>
#include <lttng/ust-tracepoint-site.h>
#include <pthread.h>
#include <time.h>

struct search {
  const char *tracepoint;
  void (*found)(struct __nopal_tp_link *link, __nopal_tp_probe probe);
  __nopal_tp_probe probe;
};

static size_t aligned(size_t n) { return (n + 3) & ~(size_t) 3; }

/* The notes of one segment: head, owner, description; each padded to 4 bytes. */
static void read_notes(const char *notes, size_t bytes, const struct search *search)
{
  size_t length = strlen(search->tracepoint) + 1;
  while (bytes >= sizeof(ElfW(Nhdr))) {
    const ElfW(Nhdr) *head = (const ElfW(Nhdr) *) notes;
    const char *owner = notes + sizeof *head;
    const char *desc = owner + aligned(head->n_namesz);
    size_t whole = sizeof *head + aligned(head->n_namesz) + aligned(head->n_descsz);
    if (whole > bytes)
      return;
    if (head->n_type == 3 && head->n_namesz == 6 && !memcmp(owner, "nopal", 6)
	&& head->n_descsz == 4 + length && !memcmp(desc + 4, search->tracepoint, length)) {
      int32_t distance;
      memcpy(&distance, desc, sizeof distance);
      /* The distance counts from where it stands. */
      search->found((struct __nopal_tp_link *) (uintptr_t) (desc + distance), search->probe);
    }
    notes += whole;
    bytes -= whole;
  }
}

static int look_into(struct dl_phdr_info *object, size_t size, void *search)
{
  (void) size;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    /* Segments aligned to 8 hold notes that are padded otherwise, none of ours. */
    if (segment->p_type == PT_NOTE && segment->p_align <= 4)
      read_notes((const char *) (object->dlpi_addr + segment->p_vaddr), segment->p_memsz, search);
  }
  return 0;
}

/* What the library that goes may still wait, for all of its probes together. The process that loaded it waits for threads in
   the middle of a tracepoint, but not forever: one may have left it by longjmp(), or be the one that unloads. In a child of
   fork() most of them are not there. */
enum { PATIENCE_MS = 250, PATIENCE_OF_CHILD_MS = 10 };
static pid_t process;
static int waited_ms;

/* In the first place that is free, unless it is there already. */
static void enter(struct __nopal_tp_link *link, __nopal_tp_probe probe)
{
  for (int i = 0; i < _NOPAL_TP_PROBES; i++)
    if (__atomic_load_n(&link->probes[i], __ATOMIC_ACQUIRE) == probe)
      return;
  for (int i = 0; i < _NOPAL_TP_PROBES; i++) {
    __nopal_tp_probe none = NULL;
    if (__atomic_compare_exchange_n(&link->probes[i], &none, probe, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
      return;
  }
}

/* Another library's stays. */
static void withdraw(struct __nopal_tp_link *link, __nopal_tp_probe probe)
{
  int is_there = 0;
  for (int i = 0; i < _NOPAL_TP_PROBES; i++) {
    __nopal_tp_probe own = probe;
    is_there |= __atomic_compare_exchange_n(&link->probes[i], &own, NULL, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
  }
  if (!is_there)
    return;
  int patience_ms = getpid() == process ? PATIENCE_MS : PATIENCE_OF_CHILD_MS;
  for (int i = 0; i < _NOPAL_TP_COUNTS; i++)
    while (__atomic_load_n(&link->passing[i].n, __ATOMIC_SEQ_CST) > 0 && waited_ms < patience_ms) {
      nanosleep(&(struct timespec) { .tv_nsec = 1000000 }, NULL);
      waited_ms++;
    }
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct __nopal_tp_provided *all;

static void look_for(const struct __nopal_tp_provided *provided, void (*found)(struct __nopal_tp_link *, __nopal_tp_probe))
{
  dl_iterate_phdr(look_into, &(struct search) { provided->tracepoint, found, provided->probe });
}

void __nopal_lttng_provide(struct __nopal_tp_provided *provided)
{
  process = getpid();
  waited_ms = 0;
  pthread_mutex_lock(&lock);
  provided->next = all;
  all = provided;
  pthread_mutex_unlock(&lock);
  look_for(provided, enter);
}

void __nopal_lttng_withdraw(struct __nopal_tp_provided *provided)
{
  pthread_mutex_lock(&lock);
  for (struct __nopal_tp_provided **at = &all; *at; at = &(*at)->next)
    if (*at == provided) {
      *at = provided->next;
      break;
    }
  pthread_mutex_unlock(&lock);
  look_for(provided, withdraw);
}

/* Called by what is loaded later and has tracepoints without probes. */
__attribute__((__used__, __visibility__("hidden"))) void __nopal_lttng_enter_all(void)
{
  pthread_mutex_lock(&lock);
  for (const struct __nopal_tp_provided *provided = all; provided; provided = provided->next)
    look_for(provided, enter);
  pthread_mutex_unlock(&lock);
}

/* The note by which it is found. */
__asm__ (
  "\t.pushsection .note.nopal.link,\"a\",%note\n"
  "\t.balign 4\n"
  "\t.4byte 2f-1f, 4f-3f, 4\n"
  "1:\t.asciz \"nopal\"\n"
  "2:\t.balign 4\n"
  "3:\t.4byte __nopal_lttng_enter_all - .\n"
  "4:\t.balign 4\n"
  "\t.popsection\n");
