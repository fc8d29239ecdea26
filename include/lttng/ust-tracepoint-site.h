/* How a tracepoint looks to the assembler, and the few functions that pack fields. Read by ust-tracepoint-event.h.

   A probe's two notes are written in pieces, one asm statement for each field, since a statement has room for thirty
   constants and a tracepoint for any number of fields. Statements that are volatile keep their order.

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef _NOPAL_TRACEPOINT_SITE_H
#define _NOPAL_TRACEPOINT_SITE_H 1

#pragma GCC system_header

#define _NOPAL_TP_SLOTS 10
/* Strings and sequences of one event, together, in bytes: they are copied to the stack. */
#define _NOPAL_TP_ROOM 16384

#define _NOPAL_TP_INLINE static __inline__ __attribute__((__always_inline__, __unused__))
#if defined __clang__
# define _NOPAL_TP_NOCLONE
#else
# define _NOPAL_TP_NOCLONE , __noclone__
#endif
/* GCC guesses the size of an asm statement by its lines, see nopal.h. */
#if defined __clang__ || __GNUC__ < 9
# define _NOPAL_TP_ASM __asm__ __volatile__
#else
# define _NOPAL_TP_ASM __asm__ __volatile__ __inline__
#endif

typedef void (*__nopal_tp_site)(const unsigned long *);
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

/* 3. Probes in a library that is loaded later, docs/formats.md section 3: a pointer, and a note in memory that leads to
   it. */
#define _NOPAL_TP_LINK(provider, name, pointer)				\
  "\t.pushsection .data.rel.nopal,\"aw\",\"progbits\"\n"		\
  "\t.balign 8\n"							\
  "\t.weak " pointer "\n"						\
  "\t.hidden " pointer "\n"						\
  "\t.type " pointer ", \"object\"\n"					\
  "\t.size " pointer ", 8\n"						\
  pointer ":\n"								\
  "\t.8byte 0\n"							\
  "\t.popsection\n"							\
  "\t.pushsection .note.nopal.link,\"a\",\"note\"\n"			\
  "\t.balign 4\n"							\
  "\t.4byte 962f-961f, 964f-963f, 2\n"					\
  "961:\t.asciz \"nopal\"\n"						\
  "962:\t.balign 4\n"							\
  "963:\t.4byte " pointer " - .\n"					\
  "\t.asciz \"" provider ":" name "\"\n"				\
  "964:\t.balign 4\n"							\
  "\t.popsection\n"

_NOPAL_TP_EXTERN_C void __nopal_lttng_provide(const char *tracepoint, void (*probe)(void));

/* 4. Packing. */

_NOPAL_TP_INLINE __SIZE_TYPE__ __nopal_tp_length(long length)
{
  return length < 0 ? 0 : (__SIZE_TYPE__) length;
}

_NOPAL_TP_INLINE char *__nopal_tp_append(char *to, const void *from, __SIZE_TYPE__ bytes)
{
  __builtin_memcpy(to, from, bytes);
  return to + bytes;
}

_NOPAL_TP_INLINE __SIZE_TYPE__ __nopal_tp_string_bytes(const char *text, __SIZE_TYPE__ *length, __SIZE_TYPE__ *room)
{
  *length = __builtin_strlen(text);
  if (*length > *room)
    *length = *room;
  *room -= *length;
  return *length + 1;
}

/* The count as it will stand in the block: bit 31 says that there were more. */
_NOPAL_TP_INLINE __SIZE_TYPE__ __nopal_tp_sequence_bytes(__SIZE_TYPE__ *count, __SIZE_TYPE__ size, __SIZE_TYPE__ *room)
{
  __SIZE_TYPE__ fit = *room / size, n = *count;
  if (n > fit) {
    n = fit;
    *count = n | 0x80000000ul;
  }
  *room -= n * size;
  return 4 + n * size;
}

_NOPAL_TP_INLINE char *__nopal_tp_append_sequence(char *to, const void *from, __SIZE_TYPE__ count, __SIZE_TYPE__ size)
{
  __UINT32_TYPE__ word = (__UINT32_TYPE__) count;
  to = __nopal_tp_append(to, &word, 4);
  count &= 0x7ffffffful;
  return count ? __nopal_tp_append(to, from, count * size) : to;
}

#endif
