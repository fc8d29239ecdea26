/* How a tracepoint looks to the assembler, and how it finds probes in a library. Read by ust-tracepoint-event.h.

   A probe's two notes are written in pieces, one asm statement for each field, since a statement has room for thirty
   constants and a tracepoint for any number of fields. Statements that are volatile keep their order.

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef _NOPAL_TRACEPOINT_SITE_H
#define _NOPAL_TRACEPOINT_SITE_H 1

#pragma GCC system_header

#define _NOPAL_TP_SLOTS 10

#define _NOPAL_TP_INLINE static __inline__ __attribute__((__always_inline__, __unused__))
/* What need not be inline: without optimisation a function would have room on its stack for each of them. */
#ifdef __OPTIMIZE__
# define _NOPAL_TP_STEP _NOPAL_TP_INLINE
#else
# define _NOPAL_TP_STEP static __inline__ __attribute__((__unused__))
#endif
#if defined __clang__
# define _NOPAL_TP_NOCLONE
#else
# define _NOPAL_TP_NOCLONE , __noclone__
#endif
/* What is only called while somebody traces takes no room on its callers' stacks. */
#define _NOPAL_TP_OUTLINE __attribute__((__noinline__ _NOPAL_TP_NOCLONE))
/* GCC guesses the size of an asm statement by its lines, see nopal.h. */
#if defined __clang__ || __GNUC__ < 9
# define _NOPAL_TP_ASM __asm__ __volatile__
#else
# define _NOPAL_TP_ASM __asm__ __volatile__ __inline__
#endif

typedef void (*__nopal_tp_site)(const unsigned long *);
/* One of a few places, which is mostly this thread's alone: by its stack. */
#define _NOPAL_TP_OWN(n) \
  (((unsigned long) __builtin_frame_address(0) >> 16) * 0x9e3779b97f4a7c15ul >> 32) % (n)
#define _NOPAL_TP_IS_SIGNED(type) ((type) -1 < (type) 1)

/* 1. The two notes. Their sections are left after each piece. */

#if _NOPAL_SDT_RETAIN
# define _NOPAL_TP_RETAIN "R"
#else
# define _NOPAL_TP_RETAIN ""
#endif
#define _NOPAL_TP_IN_STAPSDT(text)					\
  "\t.pushsection .note.stapsdt," _NOPAL_SDT_TEXT(_NOPAL_SDT_AUTOGROUP) ",\"note\"\n" text "\t.popsection\n"
#define _NOPAL_TP_IN_NOTE(text)						\
  "\t.pushsection .note.nopal,\"" _NOPAL_TP_RETAIN "\",\"note\"\n" text "\t.popsection\n"

/* Symbols of the assembler count: how many operands there are, whether a field had to be packed. */
#define _NOPAL_TP_SITE_BEGIN(provider, name, semaphore)			\
  "990:\t" _NOPAL_SDT_TEXT(_NOPAL_SDT_SITE) "\n"			\
  _NOPAL_TP_IN_STAPSDT(							\
    "\t.balign 4\n"							\
    "\t.4byte 992f-991f, 996f-993f, 3\n"				\
    "991:\t.asciz \"stapsdt\"\n"					\
    "992:\t.balign 4\n"							\
    "993:\t" _NOPAL_SDT_TEXT(_NOPAL_SDT_ADDR) " 990b, _.stapsdt.base, " semaphore "\n" \
    "\t.asciz \"" provider "\"\n"					\
    "\t.asciz \"" name "\"\n")						\
  _NOPAL_SDT_KEEP("_.stapsdt.base")					\
  _NOPAL_SDT_KEEP(semaphore)						\
  _NOPAL_SDT_BASE							\
  "\t.pushsection .probes,\"aw\",\"progbits\"\n"			\
  "\t.balign 2\n"							\
  "\t.globl " semaphore "\n"						\
  "\t.type " semaphore ", \"object\"\n"					\
  "\t.size " semaphore ", 2\n"						\
  semaphore ":\n"							\
  "\t.2byte 0\n"							\
  "\t.popsection\n"							\
  "\t.set .Lnopal_n, 0\n"						\
  "\t.set .Lnopal_is_packed, 0\n"

/* With a block, operands 11 and 12 are its address and its length, whatever number comes before them. */
#define _NOPAL_TP_SITE_END						\
  "\t.if .Lnopal_is_packed\n"						\
  _NOPAL_TP_IN_STAPSDT(							\
    "\t.if .Lnopal_n > 0\n"						\
    "\t.ascii \" \"\n"							\
    "\t.endif\n"							\
    "\t.rept 10 - .Lnopal_n\n"						\
    "\t.ascii \"" _NOPAL_TP_ZERO " \"\n"				\
    "\t.endr\n"								\
    "\t.ascii \"" _NOPAL_TP_PLAIN_OPERAND(80) " " _NOPAL_TP_PLAIN_OPERAND(88) "\"\n") \
  _NOPAL_TP_IN_NOTE("\t.2byte 0x30, 2\n\t.byte 11, 12\n")		\
  "\t.endif\n"								\
  _NOPAL_TP_IN_STAPSDT("\t.byte 0\n996:\t.balign 4\n")

#define _NOPAL_TP_NOTE_BEGIN(provider, name)				\
  _NOPAL_TP_IN_NOTE(							\
    "\t.balign 4\n"							\
    "\t.4byte 972f-971f, 974f-973f, 1\n"				\
    "971:\t.asciz \"nopal\"\n"						\
    "972:\t.balign 4\n"							\
    "973:\t.2byte 1, 0\n"						\
    _NOPAL_TP_NOTE_TEXT("0x01", provider) _NOPAL_TP_NOTE_TEXT("0x02", name))
#define _NOPAL_TP_NOTE_END _NOPAL_TP_IN_NOTE("974:\t.balign 4\n")
#define _NOPAL_TP_NOTE_TEXT(tag, text) "\t.2byte " tag ", 982f-981f\n981:\t.ascii \"" text "\"\n982:\n"
#define _NOPAL_TP_TRUSTED "\t.2byte 0x19, 0\n"

/* 2. Operands: slots, by their distance from the register with the first parameter. */

#if defined __x86_64__
# define _NOPAL_TP_PIN(name, slots) const unsigned long *name = slots;
# define _NOPAL_TP_PINNED(name) "D" (name)
# define _NOPAL_TP_BEFORE_OFFSET ""
# define _NOPAL_TP_AFTER_OFFSET "(%%rdi)"
# define _NOPAL_TP_PLAIN_OPERAND(offset) "8@" #offset "(%rdi)"
# define _NOPAL_TP_ZERO "8@$0"
#else
# define _NOPAL_TP_PIN(name, slots) register const unsigned long *name __asm__("x0") = slots;
# define _NOPAL_TP_PINNED(name) "r" (name)
# define _NOPAL_TP_BEFORE_OFFSET "[x0, "
# define _NOPAL_TP_AFTER_OFFSET "]"
# define _NOPAL_TP_PLAIN_OPERAND(offset) "8@[x0, " #offset "]"
# define _NOPAL_TP_ZERO "8@0"
#endif

/* One field that may be an operand: -4@16(%rdi), with its digits computed by the assembler. */
#define _NOPAL_TP_OPERAND(kind, name, type, size, items)		\
  "\t.if .Lnopal_n < 10\n"						\
  _NOPAL_TP_IN_STAPSDT(							\
    "\t.if .Lnopal_n > 0\n"						\
    "\t.ascii \" \"\n"							\
    "\t.endif\n"							\
    "\t.if %c[_nopal_sign]\n"							\
    "\t.ascii \"-\"\n"							\
    "\t.endif\n"							\
    "\t.byte 48 + %c[_nopal_size]\n"						\
    "\t.ascii \"@" _NOPAL_TP_BEFORE_OFFSET "\"\n"			\
    "\t.if .Lnopal_n > 1\n"						\
    "\t.byte 48 + 8 * .Lnopal_n / 10\n"					\
    "\t.endif\n"							\
    "\t.byte 48 + 8 * .Lnopal_n - 8 * .Lnopal_n / 10 * 10\n"		\
    "\t.ascii \"" _NOPAL_TP_AFTER_OFFSET "\"\n")			\
  "\t.set .Lnopal_n, .Lnopal_n + 1\n"					\
  _NOPAL_TP_IN_NOTE("\t.2byte 0x10, 2\n\t.byte .Lnopal_n, " kind "\n")	\
  "\t.else\n"								\
  "\t.set .Lnopal_is_packed, 1\n"					\
  _NOPAL_TP_IN_NOTE("\t.2byte 0x10, 2\n\t.byte 255, " kind "\n" size)	\
  "\t.endif\n"								\
  _NOPAL_TP_IN_NOTE(_NOPAL_TP_NOTE_TEXT("0x11", name) _NOPAL_TP_NOTE_TEXT("0x12", type) items)
#define _NOPAL_TP_SIZE "\t.2byte 0x1a, 1\n\t.byte %c[_nopal_size]\n"
#define _NOPAL_TP_SIGN "\t.2byte 0x1c, 1\n\t.byte %c[_nopal_sign]\n"

/* One field that is always packed. */
#define _NOPAL_TP_ELEMENTS(kind, name, type, items)			\
  "\t.set .Lnopal_is_packed, 1\n"					\
  _NOPAL_TP_IN_NOTE(							\
    "\t.2byte 0x10, 2\n\t.byte 255, " kind "\n"				\
    "\t.2byte 0x16, 6\n\t.byte %c[_nopal_kind], %c[_nopal_size]\n\t.4byte %c[_nopal_count]\n" \
    _NOPAL_TP_NOTE_TEXT("0x11", name) _NOPAL_TP_NOTE_TEXT("0x12", type) items)

/* A table of labels. The symbol .Lnopal_next is what lttng_ust_field_enum_auto() stands for. */
#define _NOPAL_TP_TABLE_BEGIN _NOPAL_TP_IN_NOTE("\t.2byte 0x15, 986f-985f\n985:\n") "\t.set .Lnopal_next, 0\n"
#define _NOPAL_TP_TABLE_END _NOPAL_TP_IN_NOTE("986:\n")
#define _NOPAL_TP_LABEL_BEGIN						\
  _NOPAL_TP_IN_NOTE("\t.4byte %c[_nopal_first], %c[_nopal_first_high], %c[_nopal_last], %c[_nopal_last_high]\n\t.byte 984f-983f\n") \
  "\t.set .Lnopal_next, (%c[_nopal_last_high] << 32) + (%c[_nopal_last] & 0xffffffff) + 1\n"
#define _NOPAL_TP_LABEL_NEXT						\
  _NOPAL_TP_IN_NOTE("\t.8byte .Lnopal_next, .Lnopal_next\n\t.byte 984f-983f\n") \
  "\t.set .Lnopal_next, .Lnopal_next + 1\n"
#define _NOPAL_TP_LABEL_END(label) _NOPAL_TP_IN_NOTE("983:\t.ascii " _NOPAL_SDT_TEXT(label) "\n984:\n")

/* 3. Probes in a library that comes and goes, docs/formats.md section 3: a link, and a note in memory that leads to it. */
#define _NOPAL_TP_LINK(provider, name, link)				\
  "\t.pushsection .bss.nopal,\"aw\",\"nobits\"\n"			\
  "\t.balign 64\n"							\
  "\t.weak " link "\n"							\
  "\t.hidden " link "\n"						\
  "\t.type " link ", \"object\"\n"					\
  "\t.size " link ", %c[_nopal_size]\n"					\
  link ":\n"								\
  "\t.zero %c[_nopal_size]\n"						\
  "\t.popsection\n"							\
  "\t.pushsection .note.nopal.link,\"a\",\"note\"\n"			\
  "\t.balign 4\n"							\
  "\t.4byte 962f-961f, 964f-963f, 3\n"					\
  "961:\t.asciz \"nopal\"\n"						\
  "962:\t.balign 4\n"							\
  "963:\t.4byte " link " - .\n"						\
  "\t.asciz \"" provider ":" name "\"\n"				\
  "964:\t.balign 4\n"							\
  "\t.popsection\n"

typedef void (*__nopal_tp_probe)(void);

/* A library enters its probe when it is loaded; before it is unloaded it withdraws it and waits until nobody is in it.
   Several libraries may have probes for one tracepoint, and each of them is called. The passes in progress are counted in
   several places, so that threads rarely meet. */
#define _NOPAL_TP_PROBES 8
#define _NOPAL_TP_COUNTS 8
struct __nopal_tp_link {
  __nopal_tp_probe probes[_NOPAL_TP_PROBES] __attribute__((__aligned__(64)));
  struct {
    int n __attribute__((__aligned__(64)));
  } passing[_NOPAL_TP_COUNTS];
};

/* Where to leave again; null if there is no probe. */
_NOPAL_TP_INLINE int *__nopal_tp_enter(struct __nopal_tp_link *link)
{
  int *passing, i = 0;
  while (!__atomic_load_n(&link->probes[i], __ATOMIC_RELAXED))
    if (++i == _NOPAL_TP_PROBES)
      return 0;
  passing = &link->passing[_NOPAL_TP_OWN(_NOPAL_TP_COUNTS)].n;
  __atomic_fetch_add(passing, 1, __ATOMIC_SEQ_CST);
  return passing;
}

_NOPAL_TP_INLINE void __nopal_tp_leave(int *passing)
{
  __atomic_fetch_sub(passing, 1, __ATOMIC_RELEASE);
}

/* One probe of a library, in the list of all that it has. */
struct __nopal_tp_provided {
  const char *tracepoint;
  __nopal_tp_probe probe;
  struct __nopal_tp_provided *next;
};
_NOPAL_TP_EXTERN_C void __nopal_lttng_provide(struct __nopal_tp_provided *provided);
_NOPAL_TP_EXTERN_C void __nopal_lttng_withdraw(struct __nopal_tp_provided *provided);

/* 4. A part of the program that is loaded after the libraries with its probes: it asks each of them to enter them anew. They
   are found by notes of type 4 in memory, each with the distance to a function. */
#ifdef LTTNG_UST_TRACEPOINT_PROBE_DYNAMIC_LINKAGE
/* Declared here: the C library has them only for those who ask for GNU's extensions, and <elf.h> defines names that stand in
   the text for the assembler. */
struct __nopal_tp_segment {
  unsigned type, flags;
  unsigned long offset, address, physical, file_bytes, bytes, alignment;
};
struct __nopal_tp_object {
  unsigned long address;
  const char *name;
  const struct __nopal_tp_segment *segments;
  unsigned short n_segments;
};
struct __nopal_tp_note {
  unsigned owner_bytes, desc_bytes, type;
};
_NOPAL_TP_EXTERN_C int __nopal_tp_each_object(int (*)(struct __nopal_tp_object *, __SIZE_TYPE__, void *), void *)
  __asm__("dl_iterate_phdr");

__attribute__((__unused__)) static int __nopal_tp_ask(struct __nopal_tp_object *object, __SIZE_TYPE__ size, void *asked)
{
  int i;
  for (i = 0; i < object->n_segments; i++) {
    const struct __nopal_tp_segment *segment = &object->segments[i];
    const char *at = (const char *) (object->address + segment->address), *end = at + segment->bytes;
    /* PT_NOTE. Segments aligned to 8 hold notes that are padded otherwise, none of ours. */
    if (segment->type != 4 || segment->alignment > 4)
      continue;
    while (end - at >= (long) sizeof(struct __nopal_tp_note)) {
      const struct __nopal_tp_note *head = (const struct __nopal_tp_note *) at;
      const char *owner = at + sizeof *head, *desc = owner + ((head->owner_bytes + 3) & ~3u);
      at = desc + ((head->desc_bytes + 3) & ~3u);
      if (at > end || at < desc)
	break;
      if (head->type == 4 && head->owner_bytes == 6 && head->desc_bytes == 4 && !__builtin_memcmp(owner, "nopal", 6))
	((void (*)(void)) (desc + *(const int *) desc))();
    }
  }
  (void) size;
  (void) asked;
  return 0;
}

/* One for each file that defines tracepoints so. */
__attribute__((__constructor__, __unused__)) static void __nopal_tp_ask_all(void)
{
  __nopal_tp_each_object(__nopal_tp_ask, 0);
}
#endif

#endif
