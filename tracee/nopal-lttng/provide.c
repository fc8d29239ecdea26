/* Probes in a library that a program loads later (LTTNG_UST_TRACEPOINT_PROBE_DYNAMIC_LINKAGE): when the library comes, its
   functions are entered where the program's tracepoints look for them. The program need not be linked with anything; its
   tracepoints are found by notes in its memory (docs/formats.md, section 3).

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>
#include <string.h>

void __nopal_lttng_provide(const char *tracepoint, void (*probe)(void));

struct wanted {
  const char *tracepoint;
  void (*probe)(void);
};

static size_t aligned(size_t n) { return (n + 3) & ~(size_t) 3; }

/* The notes of one segment: head, owner, description; each padded to 4 bytes. */
static void enter_into(const char *notes, size_t bytes, const struct wanted *wanted)
{
  size_t length = strlen(wanted->tracepoint) + 1;
  while (bytes >= sizeof(ElfW(Nhdr))) {
    const ElfW(Nhdr) *head = (const ElfW(Nhdr) *) notes;
    const char *owner = notes + sizeof *head;
    const char *desc = owner + aligned(head->n_namesz);
    size_t whole = sizeof *head + aligned(head->n_namesz) + aligned(head->n_descsz);
    if (whole > bytes)
      return;
    if (head->n_type == 2 && head->n_namesz == 6 && !memcmp(owner, "nopal", 6)
	&& head->n_descsz == 4 + length && !memcmp(desc + 4, wanted->tracepoint, length)) {
      int32_t distance;
      memcpy(&distance, desc, sizeof distance);
      /* The distance counts from where it stands. */
      void (**pointer)(void) = (void (**)(void)) (uintptr_t) (desc + distance);
      __atomic_store_n(pointer, wanted->probe, __ATOMIC_RELEASE);
    }
    notes += whole;
    bytes -= whole;
  }
}

static int look_into(struct dl_phdr_info *object, size_t size, void *wanted)
{
  (void) size;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    /* Segments aligned to 8 hold notes that are padded otherwise, none of ours. */
    if (segment->p_type == PT_NOTE && segment->p_align <= 4)
      enter_into((const char *) (object->dlpi_addr + segment->p_vaddr), segment->p_memsz, wanted);
  }
  return 0;
}

void __nopal_lttng_provide(const char *tracepoint, void (*probe)(void))
{
  struct wanted wanted = { tracepoint, probe };
  dl_iterate_phdr(look_into, &wanted);
}
