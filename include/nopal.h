/* <nopal.h>: static probes whose arguments have names, types and descriptions.

     NOPAL_PROBE(myserver, request__start,
                 NOPAL_DOC("A request was read and will be served."),
                 NOPAL_STARTS(request__end),
                 NOPAL_ARG(int, connection, conn->fd),
                 NOPAL_STR(path),
                 NOPAL_STRN(body, body_length),
                 NOPAL_ARG(bool, keep_alive, conn->keep, "The client asked for more."));

   To every tracer this is the probe myserver:request__start, as DTRACE_PROBE5 of sys/sdt.h would make it; nopal also
   reads the second note that tells what the arguments mean. Neither note is loaded into memory. C99 or C++11, GCC or
   clang, Linux on x86-64 or arm64; elsewhere, or with NOPAL_DISABLE defined, probes compile to nothing.

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef NOPAL_H
#define NOPAL_H 1

/* 1. Probes.

   NOPAL_PROBE(provider, name, items...)          a probe; its arguments are evaluated always
   NOPAL_PROBE_GUARDED(provider, name, items...)  a probe with a semaphore; its arguments are evaluated only while a
                                                  tracer listens, and the code for them is moved out of the way
   NOPAL_ENABLED(provider, name)                  whether a tracer listens to that guarded probe
   NOPAL_FIRE(provider, name, items...)           a guarded probe without its guard, for use below NOPAL_ENABLED:

     if (NOPAL_ENABLED(myserver, stats)) {
       struct stats s = collect();
       NOPAL_FIRE(myserver, stats, NOPAL_ARG(long, hits, s.hits), NOPAL_ARG(long, misses, s.misses));
     }

   A plain NOPAL_PROBE there would be of no use: it has no semaphore that a tracer could raise.
   Semaphores need no declaration and no object from `dtrace -G`. All sites of a probe in a linked file share one. */

#define NOPAL_PROBE(...) _NOPAL_PROBE(__VA_ARGS__, _NOPAL_NO_MORE)
#define NOPAL_PROBE_GUARDED(...) _NOPAL_PROBE_GUARDED(__VA_ARGS__, _NOPAL_NO_MORE)
#define NOPAL_FIRE(...) _NOPAL_FIRE(__VA_ARGS__, _NOPAL_NO_MORE)
#define NOPAL_ENABLED(provider, name) _NOPAL_ENABLED(provider, name)

/* 2. Arguments: up to 12 values, where a string with a length counts as two.

   A value may be left out if the name is also that of the variable; a description may follow the value.

   NOPAL_ARG(type, name [, value [, "description"]])    an integer, a bool, a pointer, a float: any scalar type
   NOPAL_HEX(type, name [, value [, "description"]])    the same, shown in base 16
   NOPAL_FLOAT(name [, value [, "description"]])        a double or float; better than NOPAL_ARG, which cannot show constants
   NOPAL_ENUM(type, name, value, labels)                an integer with labels: NOPAL_LABEL(0, "get") NOPAL_LABEL(1, "set")
   NOPAL_STR(name [, value [, "description"]])          a string that ends with NUL
   NOPAL_STRN(name [, value], length [, "description"]) text of `length` bytes; no NUL needed
   NOPAL_BYTES(name [, value], length [, "description"]) `length` bytes of anything

   The pointer of a string must be null or valid whenever the probe fires: nopal copies the text right there and then.
   For a pointer that may be neither, use NOPAL_ARG(const char *, ...), which promises nothing.

   In a description %, {, | and } are written %%, %{, %| and %}. */

#define NOPAL_ARG(type, ...) _NOPAL_BY_COUNT(_NOPAL_ARG_, __VA_ARGS__)(type, #type, "", __VA_ARGS__)
#define NOPAL_HEX(type, ...) _NOPAL_BY_COUNT(_NOPAL_ARG_, __VA_ARGS__)(type, #type, _NOPAL_BASE_16, __VA_ARGS__)
#define NOPAL_FLOAT(...) _NOPAL_BY_COUNT(_NOPAL_FLOAT_, __VA_ARGS__)(__VA_ARGS__)
#define NOPAL_ENUM(type, name, value, labels)				\
  (ONE, type, #type, #name, value, 9, _NOPAL_ENUM_BEGIN labels _NOPAL_ENUM_END, 0, "")
#define NOPAL_LABEL(number, text) _NOPAL_LABEL(number, text)
#define NOPAL_STR(...) _NOPAL_BY_COUNT(_NOPAL_STR_, __VA_ARGS__)(__VA_ARGS__)
#define NOPAL_STRN(...) _NOPAL_BY_COUNT(_NOPAL_SPAN_, __VA_ARGS__)(6, const char *, __VA_ARGS__)
#define NOPAL_BYTES(...) _NOPAL_BY_COUNT(_NOPAL_SPAN_, __VA_ARGS__)(7, const void *, __VA_ARGS__)

/* 3. What may be said about a probe as a whole.

   NOPAL_DOC("...")        what the probe reports
   NOPAL_STARTS(partner)   begins what the probe `partner` of the same provider ends; and the other way round:
   NOPAL_ENDS(partner)
   NOPAL_LOGLEVEL(number)  as LTTng counts them: 0 emergency to 14 debug */

#define NOPAL_DOC(text) (ITEM, _NOPAL_NOTE_TEXT(0x03, "", text))
#define NOPAL_STARTS(partner) (ITEM, _NOPAL_NOTE_TEXT(0x04, "\t.byte 1\n", #partner))
#define NOPAL_ENDS(partner) (ITEM, _NOPAL_NOTE_TEXT(0x04, "\t.byte 2\n", #partner))
#define NOPAL_LOGLEVEL(number) (ITEM, "\t.2byte 0x05, 4\n\t.4byte " #number "\n")

/* Probes that are declared while the program runs are in section 8, at the end.

   The rest is how it is done.

   4. Items. Each of the macros above becomes a list in parentheses, whose first word is its shape:

   (ONE, type, type as text, name as text, value, kind, further items of the note, has description, description)
   (TWO, type, name as text, value, length, kind, has description, description)
   (ITEM, text for the note)
   (END, ~)

   The kinds are those of the nopal note (docs/formats.md, section 3). */

#define _NOPAL_ARG_1(type, text, more, name) (ONE, type, text, #name, name, OF_TYPE, more, 0, "")
#define _NOPAL_ARG_2(type, text, more, name, value) (ONE, type, text, #name, value, OF_TYPE, more, 0, "")
#define _NOPAL_ARG_3(type, text, more, name, value, doc)		\
  (ONE, type, text, #name, value, OF_TYPE, more, 1, doc)

#define _NOPAL_FLOAT_1(name) _NOPAL_FLOAT_ITEM(#name, name, 0, "")
#define _NOPAL_FLOAT_2(name, value) _NOPAL_FLOAT_ITEM(#name, value, 0, "")
#define _NOPAL_FLOAT_3(name, value, doc) _NOPAL_FLOAT_ITEM(#name, value, 1, doc)
/* As an integer with the same bits, since a constant double would be named by a label that is gone after linking. */
#define _NOPAL_FLOAT_ITEM(name, value, has_doc, doc)			\
  (ONE, unsigned long, "double", name, __nopal_bits_of_double(value), 8, "", has_doc, doc)

#define _NOPAL_STR_1(name) (ONE, const char *, "const char *", #name, name, 5, _NOPAL_TRUSTED, 0, "")
#define _NOPAL_STR_2(name, value) (ONE, const char *, "const char *", #name, value, 5, _NOPAL_TRUSTED, 0, "")
#define _NOPAL_STR_3(name, value, doc) (ONE, const char *, "const char *", #name, value, 5, _NOPAL_TRUSTED, 1, doc)

#define _NOPAL_SPAN_2(kind, type, name, length) (TWO, type, #type, #name, name, length, kind, 0, "")
#define _NOPAL_SPAN_3(kind, type, name, value, length) (TWO, type, #type, #name, value, length, kind, 0, "")
#define _NOPAL_SPAN_4(kind, type, name, value, length, doc) (TWO, type, #type, #name, value, length, kind, 1, doc)

#define _NOPAL_BY_COUNT(prefix, ...) _NOPAL_PASTE(prefix, _NOPAL_COUNT(__VA_ARGS__, 4, 3, 2, 1, ~))
#define _NOPAL_COUNT(a, b, c, d, n, ...) n
#define _NOPAL_PASTE(a, b) _NOPAL_PASTE_(a, b)
#define _NOPAL_PASTE_(a, b) a##b

/* A list of items is filled up with END to 14, so that each can be handled by its number. The last one stands where a
   fifteenth item would. */
#define _NOPAL_NO_MORE							\
  (END, ~), (END, ~), (END, ~), (END, ~), (END, ~), (END, ~), (END, ~), (END, ~), (END, ~), (END, ~), (END, ~),	\
  (END, ~), (END, ~), (END, ~), (END, ~), ~

/* _NOPAL_EACH(DO, items) is DO(1, n, first) DO(2, n, second) ..., where n is the number of the operand that the item
   takes, as a sum for the assembler: 1+1+2. */
#define _NOPAL_EACH(DO, ...) _NOPAL_EACH_(DO, __VA_ARGS__)
#define _NOPAL_EACH_(DO, a, b, c, d, e, f, g, h, i, j, k, l, m, n, ...) \
  _NOPAL_##DO(1, 1, a)							\
  _NOPAL_##DO(2, 1 _NOPAL_WIDTH(a), b)					\
  _NOPAL_##DO(3, 1 _NOPAL_WIDTH(a) _NOPAL_WIDTH(b), c)			\
  _NOPAL_##DO(4, 1 _NOPAL_WIDTH(a) _NOPAL_WIDTH(b) _NOPAL_WIDTH(c), d)	\
  _NOPAL_##DO(5, _NOPAL_AFTER_4(a, b, c, d), e)				\
  _NOPAL_##DO(6, _NOPAL_AFTER_4(a, b, c, d) _NOPAL_WIDTH(e), f)		\
  _NOPAL_##DO(7, _NOPAL_AFTER_4(a, b, c, d) _NOPAL_WIDTH(e) _NOPAL_WIDTH(f), g) \
  _NOPAL_##DO(8, _NOPAL_AFTER_4(a, b, c, d) _NOPAL_WIDTH(e) _NOPAL_WIDTH(f) _NOPAL_WIDTH(g), h) \
  _NOPAL_##DO(9, _NOPAL_AFTER_8(a, b, c, d, e, f, g, h), i)		\
  _NOPAL_##DO(10, _NOPAL_AFTER_8(a, b, c, d, e, f, g, h) _NOPAL_WIDTH(i), j) \
  _NOPAL_##DO(11, _NOPAL_AFTER_8(a, b, c, d, e, f, g, h) _NOPAL_WIDTH(i) _NOPAL_WIDTH(j), k) \
  _NOPAL_##DO(12, _NOPAL_AFTER_8(a, b, c, d, e, f, g, h) _NOPAL_WIDTH(i) _NOPAL_WIDTH(j) _NOPAL_WIDTH(k), l) \
  _NOPAL_##DO(13, _NOPAL_AFTER_12(a, b, c, d, e, f, g, h, i, j, k, l), m) \
  _NOPAL_##DO(14, _NOPAL_AFTER_12(a, b, c, d, e, f, g, h, i, j, k, l) _NOPAL_WIDTH(m), n)
#define _NOPAL_AFTER_4(a, b, c, d) 1 _NOPAL_WIDTH(a) _NOPAL_WIDTH(b) _NOPAL_WIDTH(c) _NOPAL_WIDTH(d)
#define _NOPAL_AFTER_8(a, b, c, d, e, f, g, h)				\
  _NOPAL_AFTER_4(a, b, c, d) _NOPAL_WIDTH(e) _NOPAL_WIDTH(f) _NOPAL_WIDTH(g) _NOPAL_WIDTH(h)
#define _NOPAL_AFTER_12(a, b, c, d, e, f, g, h, i, j, k, l)		\
  _NOPAL_AFTER_8(a, b, c, d, e, f, g, h) _NOPAL_WIDTH(i) _NOPAL_WIDTH(j) _NOPAL_WIDTH(k) _NOPAL_WIDTH(l)

/* The shape of an item selects the macro that handles it: _NOPAL_SHAPED(VALUES, 3, 1+1, (ONE, ...)) is
   _NOPAL_VALUES_ONE(3, 1+1, ...). */
#define _NOPAL_SHAPED(what, i, n, item) _NOPAL_SHAPED_1(what, i, n, _NOPAL_OPEN item)
#define _NOPAL_SHAPED_1(...) _NOPAL_SHAPED_2(__VA_ARGS__)
#define _NOPAL_SHAPED_2(what, i, n, shape, ...) _NOPAL_##what##_##shape(i, n, __VA_ARGS__)
#define _NOPAL_OPEN(...) __VA_ARGS__

#define _NOPAL_WIDTH(item) _NOPAL_WIDTH_1(_NOPAL_OPEN item)
#define _NOPAL_WIDTH_1(...) _NOPAL_WIDTH_2(__VA_ARGS__)
#define _NOPAL_WIDTH_2(shape, ...) _NOPAL_WIDTH_##shape
#define _NOPAL_WIDTH_ONE +1
#define _NOPAL_WIDTH_TWO +2
#define _NOPAL_WIDTH_ITEM
#define _NOPAL_WIDTH_END

#if !defined NOPAL_DISABLE && defined __linux__ && defined __LP64__ && (defined __x86_64__ || defined __aarch64__)

/* 5. The site, its stapsdt note and its nopal note, in one asm statement. It names "memory", since a tracer may read what
   an argument points to, which therefore must have been written by then. */

#include "sys/sdt-config.h"

#define _NOPAL_PROBE(provider, name, ...)				\
  do {									\
    _NOPAL_EACH(VARIABLE, __VA_ARGS__)					\
    _NOPAL_SITE(provider, name, "0", "", __VA_ARGS__)			\
  } while (0)

#define _NOPAL_FIRE(provider, name, ...)				\
  do {									\
    _NOPAL_EACH(VARIABLE, __VA_ARGS__)					\
    _NOPAL_SITE(provider, name, _NOPAL_SDT_TEXT(provider##_##name##_semaphore), \
		_NOPAL_SDT_KEEP(_NOPAL_SDT_TEXT(provider##_##name##_semaphore))	\
		_NOPAL_SEMAPHORE(_NOPAL_SDT_TEXT(provider##_##name##_semaphore)), __VA_ARGS__) \
  } while (0)

#define _NOPAL_SITE(provider, name, semaphore, more, ...)		\
    _NOPAL_SDT_ASM_BEGIN						\
    _NOPAL_ASM (							\
      _NOPAL_SDT_SITE_AND_NOTE(_NOPAL_SDT_TEXT(provider), _NOPAL_SDT_TEXT(name), semaphore, \
			       _NOPAL_EACH(OPERAND, __VA_ARGS__))	\
      more _NOPAL_LIMITS(__VA_ARGS__)					\
      _NOPAL_NOTE(_NOPAL_SDT_TEXT(provider), _NOPAL_SDT_TEXT(name), _NOPAL_EACH(DESCRIPTION, __VA_ARGS__)) \
      : : [_nopal_kinds] "n" (__extension__ ((0UL _NOPAL_EACH(KIND, __VA_ARGS__)) & 0xfffffff)), \
	  [_nopal_more_kinds] "n" (__extension__ ((0UL _NOPAL_EACH(KIND, __VA_ARGS__)) >> 28)) \
	  _NOPAL_EACH(VALUES, __VA_ARGS__) : "memory");			\
    _NOPAL_SDT_ASM_END

/* GCC guesses the size of an asm statement by its lines. A probe has many, but all of them make eleven bytes of code
   and no reason not to inline a function. */
#if defined __clang__ || __GNUC__ < 9
# define _NOPAL_ASM __asm__ __volatile__
#else
# define _NOPAL_ASM __asm__ __volatile__ __inline__
#endif

/* Each value becomes a variable of the declared type, so that the compiler converts and checks as in a call. */
#define _NOPAL_VARIABLE(i, n, item) _NOPAL_SHAPED(VARIABLE, i, n, item)
#define _NOPAL_VARIABLE_ONE(i, n, type, text, name, value, ...) __typeof__(type) _nopal_##i = (value);
#define _NOPAL_VARIABLE_TWO(i, n, type, text, name, value, ...) __typeof__(type) _nopal_##i = (value);
#define _NOPAL_VARIABLE_ITEM(i, n, ...)
#define _NOPAL_VARIABLE_END(i, n, ...)

/* The operands of the asm statement: two for each value, as in sys/sdt.h, ... */
#define _NOPAL_VALUES(i, n, item) _NOPAL_SHAPED(VALUES, i, n, item)
#define _NOPAL_VALUES_ONE(i, n, ...) , _NOPAL_SDT_ARG(i, _nopal_##i)
#define _NOPAL_VALUES_TWO(i, n, type, text, name, value, length, ...)	\
  , _NOPAL_SDT_ARG(i, _nopal_##i), _NOPAL_SDT_ARG(i##_length, length)
#define _NOPAL_VALUES_ITEM(i, n, ...)
#define _NOPAL_VALUES_END(i, n, ...)

/* ... and two with the kinds of all items, four bits each: there may be 30 operands in all, and GCC prints no constant
   above 32 bits. */
#define _NOPAL_KIND(i, n, item) _NOPAL_SHAPED(KIND, i, n, item)
#define _NOPAL_KIND_ONE(i, n, type, text, name, value, kind, ...) _NOPAL_KIND_BITS(i, kind)
#define _NOPAL_KIND_TWO(i, n, type, text, name, value, length, kind, ...) _NOPAL_KIND_BITS(i, kind)
#define _NOPAL_KIND_ITEM(i, n, ...)
#define _NOPAL_KIND_END(i, n, ...)
#define _NOPAL_KIND_5(x) 5
#define _NOPAL_KIND_6(x) 6
#define _NOPAL_KIND_7(x) 7
#define _NOPAL_KIND_8(x) 8
#define _NOPAL_KIND_9(x) 9
#define _NOPAL_KIND_BITS(i, kind) _NOPAL_KIND_BITS_(i, kind)
#define _NOPAL_KIND_BITS_(i, kind) | (0UL + (_NOPAL_KIND_##kind(_nopal_##i))) << (4 * (i - 1))
#define _NOPAL_KIND_IN_ASM(i) "((%c[_nopal_kinds] | %c[_nopal_more_kinds] << 28) >> (4 * (" #i " - 1))) & 15"

/* The operands in the text of the stapsdt note, with a blank before all but the first. Numbers with a point are not
   marked with an f as in sys/sdt.h: bcc and bpftrace cannot read that and lose the arguments that follow, too. */
#define _NOPAL_OPERAND(i, n, item) _NOPAL_SHAPED(OPERAND, i, n, item)
#define _NOPAL_OPERAND_ONE(i, n, ...) _NOPAL_BLANK_BEFORE(n) _NOPAL_OPERAND_TEXT(i)
#define _NOPAL_OPERAND_TWO(i, n, ...)					\
  _NOPAL_BLANK_BEFORE(n) _NOPAL_OPERAND_TEXT(i) _NOPAL_SDT_BLANK _NOPAL_OPERAND_TEXT(i##_length)
#define _NOPAL_OPERAND_ITEM(i, n, ...)
#define _NOPAL_OPERAND_END(i, n, ...)
#define _NOPAL_OPERAND_TEXT(i) "\t.ascii \"%c[_sdt_s" #i "]@%[_sdt_a" #i "]\"\n"
#define _NOPAL_BLANK_BEFORE(n) "\t.if " #n " > 1\n" _NOPAL_SDT_BLANK "\t.endif\n"

/* Nothing is dropped without a word: an error if there is a fifteenth item or a thirteenth value. */
#define _NOPAL_LIMITS(...) _NOPAL_LIMITS_(__VA_ARGS__)
#define _NOPAL_LIMITS_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, past, ...) \
  _NOPAL_SHAPED(LIMIT, 15, _NOPAL_AFTER_12(a, b, c, d, e, f, g, h, i, j, k, l) _NOPAL_WIDTH(m) _NOPAL_WIDTH(n), past)
#define _NOPAL_LIMIT_ONE(i, n, ...) "\t.error \"a probe has at most 14 items\"\n"
#define _NOPAL_LIMIT_TWO(i, n, ...) _NOPAL_LIMIT_ONE(i, n, ~)
#define _NOPAL_LIMIT_ITEM(i, n, ...) _NOPAL_LIMIT_ONE(i, n, ~)
#define _NOPAL_LIMIT_END(i, n, ...)					\
  "\t.if " #n " > 13\n"							\
  "\t.error \"a probe has at most 12 values; a string with a length counts as two\"\n" \
  "\t.endif\n"

/* The nopal note: docs/formats.md, section 3. Once per object, and by its comdat group once per linked file. */
#define _NOPAL_NOTE(provider, name, description)			\
  "\t.ifndef .Lnopal." provider "." name "\n"				\
  "\t.pushsection .note.nopal,\"" _NOPAL_NOTE_FLAGS "\",\"note\",nopal." provider "." name ",comdat\n" \
  "\t.balign 4\n"							\
  ".Lnopal." provider "." name ":\n"					\
  "\t.4byte 992f-991f, 994f-993f, 1\n"					\
  "991:\t.asciz \"nopal\"\n"						\
  "992:\t.balign 4\n"							\
  "993:\t.2byte 1, 0\n"							\
  "\t.2byte 0x01, 982f-981f\n981:\t.ascii \"" provider "\"\n982:\n"	\
  "\t.2byte 0x02, 982f-981f\n981:\t.ascii \"" name "\"\n982:\n"		\
  description								\
  "994:\t.balign 4\n"							\
  "\t.popsection\n"							\
  "\t.endif\n"
#if _NOPAL_SDT_RETAIN
# define _NOPAL_NOTE_FLAGS "GR"
#else
# define _NOPAL_NOTE_FLAGS "G"
#endif

#define _NOPAL_DESCRIPTION(i, n, item) _NOPAL_SHAPED(DESCRIPTION, i, n, item)
#define _NOPAL_DESCRIPTION_ONE(i, n, type, text, name, value, kind, more, has_doc, doc) \
  _NOPAL_NOTE_ARG(i, n, text, name) more _NOPAL_NOTE_DOC_##has_doc(doc)
#define _NOPAL_DESCRIPTION_TWO(i, n, type, text, name, value, length, kind, has_doc, doc) \
  _NOPAL_NOTE_ARG(i, n, text, name) "\t.2byte 0x14, 1\n\t.byte " #n "+1\n" _NOPAL_TRUSTED _NOPAL_NOTE_DOC_##has_doc(doc)
#define _NOPAL_DESCRIPTION_ITEM(i, n, text) text
#define _NOPAL_DESCRIPTION_END(i, n, ...)
#define _NOPAL_NOTE_ARG(i, n, type_text, name)				\
  "\t.2byte 0x10, 2\n\t.byte " #n ", " _NOPAL_KIND_IN_ASM(i) "\n"	\
  _NOPAL_NOTE_TEXT(0x11, "", name) _NOPAL_NOTE_TEXT(0x12, "", type_text)
#define _NOPAL_NOTE_DOC_0(doc)
#define _NOPAL_NOTE_DOC_1(doc) _NOPAL_NOTE_TEXT(0x13, "", doc)
/* `text` is a string literal, and as such, quotes and all, it goes to the assembler. */
#define _NOPAL_NOTE_TEXT(tag, before, text)				\
  "\t.2byte " #tag ", 982f-981f\n981:\n" before "\t.ascii " _NOPAL_SDT_TEXT(text) "\n982:\n"
#define _NOPAL_TRUSTED "\t.2byte 0x19, 0\n"
#define _NOPAL_BASE_16 "\t.2byte 0x18, 1\n\t.byte 16\n"
#define _NOPAL_ENUM_BEGIN "\t.2byte 0x15, 982f-981f\n981:\n"
#define _NOPAL_LABEL(number, text)					\
  "\t.8byte " #number ", " #number "\n\t.byte 984f-983f\n983:\t.ascii " _NOPAL_SDT_TEXT(text) "\n984:\n"
#define _NOPAL_ENUM_END "982:\n"

/* The kind of a value by its declared type: 1 signed, 2 unsigned, 3 pointer, 4 bool, 8 float, 12 character. */
#ifdef __cplusplus
extern "C++" {
template <typename __T, bool __is_an_enum = __is_enum(__T)> struct __nopal_kind {
  enum { __value = __nopal_sdt_sign<__T>::__value < 0 ? 1 : 2 };
};
template <typename __T> struct __nopal_kind<__T, true> : __nopal_kind<__underlying_type(__T), false> {};
template <typename __T> struct __nopal_kind<const __T, false> : __nopal_kind<__T> {};
template <typename __T> struct __nopal_kind<volatile __T, false> : __nopal_kind<__T> {};
template <typename __T> struct __nopal_kind<const volatile __T, false> : __nopal_kind<__T> {};
template <typename __T> struct __nopal_kind<__T *, false> { enum { __value = 3 }; };
template <> struct __nopal_kind<bool, false> { enum { __value = 4 }; };
template <> struct __nopal_kind<float, false> { enum { __value = 8 }; };
template <> struct __nopal_kind<double, false> { enum { __value = 8 }; };
template <> struct __nopal_kind<char, false> { enum { __value = 12 }; };
}
# define _NOPAL_KIND_OF_TYPE(x) __nopal_kind<__typeof__(x)>::__value
#else
# define _NOPAL_KIND_OF_TYPE(x)						\
  _Generic((x), _Bool: 4, char: 12, signed char: 1, short: 1, int: 1, long: 1, long long: 1, \
	   unsigned char: 2, unsigned short: 2, unsigned int: 2, unsigned long: 2, unsigned long long: 2, \
	   float: 8, double: 8, default: 3)
#endif

static __inline__ __attribute__((__always_inline__, __unused__)) unsigned long __nopal_bits_of_double(double value)
{
  unsigned long bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* 6. Semaphores: two bytes in .probes. Weak, hidden and in a comdat group: one for all sites in a linked file. */

#define _NOPAL_SEMAPHORE(symbol)					\
  "\t.ifndef " symbol "\n"						\
  "\t.pushsection .probes,\"awG\",\"progbits\"," symbol ",comdat\n"	\
  "\t.balign 2\n"							\
  "\t.weak " symbol "\n"						\
  "\t.hidden " symbol "\n"						\
  "\t.type " symbol ", \"object\"\n"					\
  "\t.size " symbol ", 2\n"						\
  symbol ":\n"								\
  "\t.2byte 0\n"							\
  "\t.popsection\n"							\
  "\t.endif\n"

/* Whether it is above zero. On x86-64 a comparison, whose flags the compiler uses for the jump that is not taken. */
#if defined __x86_64__
# define _NOPAL_TEST(symbol, result)					\
  __asm__ __volatile__ (_NOPAL_SEMAPHORE(symbol)			\
			"\t{cmpw $0, " symbol "(%%rip)|cmp word ptr " symbol "[rip], 0}\n" : "=@ccne" (result))
#else
# define _NOPAL_TEST(symbol, result)					\
  __asm__ __volatile__ (_NOPAL_SEMAPHORE(symbol)			\
			"\tadrp %0, " symbol "\n"			\
			"\tldrh %w0, [%0, :lo12:" symbol "]\n" : "=r" (result))
#endif

#define _NOPAL_ENABLED(provider, name)					\
  __builtin_expect(__extension__ ({					\
    long _nopal_is_enabled;						\
    _NOPAL_TEST(_NOPAL_SDT_TEXT(provider##_##name##_semaphore), _nopal_is_enabled); \
    _nopal_is_enabled;							\
  }), 0)

#define _NOPAL_PROBE_GUARDED(provider, name, ...)			\
  do {									\
    if (_NOPAL_ENABLED(provider, name))					\
      _NOPAL_FIRE(provider, name, __VA_ARGS__);				\
  } while (0)

#else

/* 7. Without probes: values are still checked by the compiler, but never computed. */

#define _NOPAL_PROBE(provider, name, ...) do { if (0) { _NOPAL_EACH(CHECK, __VA_ARGS__) } } while (0)
#define _NOPAL_PROBE_GUARDED(provider, name, ...) _NOPAL_PROBE(provider, name, __VA_ARGS__)
#define _NOPAL_FIRE(provider, name, ...) _NOPAL_PROBE(provider, name, __VA_ARGS__)
#define _NOPAL_ENABLED(provider, name) 0
#define _NOPAL_CHECK(i, n, item) _NOPAL_SHAPED(CHECK, i, n, item)
#define _NOPAL_CHECK_ONE(i, n, type, text, name, value, ...) (void) (value);
#define _NOPAL_CHECK_TWO(i, n, type, text, name, value, length, ...) (void) (value); (void) (length);
#define _NOPAL_CHECK_ITEM(i, n, ...)
#define _NOPAL_CHECK_END(i, n, ...)
#define __nopal_bits_of_double(value) (value)

#endif

/* 8. Probes that are declared while the program runs, for languages without a compiler and for names that are not known
   before: link with -lnopal.

     nopal_provider *app = nopal_provider_new("app");
     nopal_arg args[] = {{"id", NOPAL_UINT64, 0}, {"path", NOPAL_STRING, 0}};
     nopal_probe *request = nopal_provider_add(app, "request", args, 2);
     nopal_provider_load(app);
     ...
     if (nopal_probe_enabled(request)) {
       nopal_value values[] = {{id, 0}, {(uintptr_t) path, 0}};
       nopal_probe_fire(request, values, 2);
     }

   To every tracer they are probes as those above, in a small shared object that exists in memory alone. All functions may
   be called from any thread; nopal_probe_enabled, nopal_probe_fire and nopal_probe_semaphore also from signal handlers, and
   while another thread loads or unloads. A forked child has its parent's probes. NULL for a provider or a probe is an
   error, never a crash. On systems other than Linux on x86-64 and arm64 loading fails with NOPAL_ERROR_UNSUPPORTED. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nopal_provider nopal_provider;
typedef struct nopal_probe nopal_probe;

/* Types of arguments. (NOPAL_FLOAT and NOPAL_BYTES are macros only where a parenthesis follows.) */
enum {
  NOPAL_INT8 = 1,
  NOPAL_UINT8,
  NOPAL_INT16,
  NOPAL_UINT16,
  NOPAL_INT32,
  NOPAL_UINT32,
  NOPAL_INT64,
  NOPAL_UINT64,
  NOPAL_FLOAT,
  NOPAL_DOUBLE,
  NOPAL_STRING,			/* a pointer to text that ends with NUL, or NULL */
  NOPAL_BYTES,			/* a pointer and a length, or NULL; counts as two of the 12 operands */
  NOPAL_TEXT			/* the same for text, which needs no NUL then */
};

/* What functions return below zero. */
enum {
  NOPAL_ERROR_INVALID = -1,	/* NULL, a name or a type that cannot be, a name that is taken */
  NOPAL_ERROR_ARGUMENTS = -2,	/* more than 12 operands; or not as many values as the probe has arguments */
  NOPAL_ERROR_NOT_LOADED = -3,	/* fired before the provider was loaded, or after it was unloaded */
  NOPAL_ERROR_SYSTEM = -4,	/* the kernel or the dynamic linker refused; nopal_error() says what */
  NOPAL_ERROR_UNSUPPORTED = -5	/* not on this system */
};

typedef struct {
  const char *name;		/* NULL: arg0, arg1, ... */
  uint32_t type;
  uint32_t reserved;		/* 0 */
} nopal_arg;

typedef struct {
  uint64_t word;		/* the integer; the bits of the float (in the lower half) or double; the pointer */
  uint64_t length;		/* NOPAL_BYTES, NOPAL_TEXT: how many bytes; otherwise ignored */
} nopal_value;

/* NULL on error. Several providers of one name may exist; a tracer sees the probes of all. */
nopal_provider *nopal_provider_new(const char *name);

/* A probe of the provider, which owns it; NULL on error. It can be seen and fired after the next nopal_provider_load.
   Probes that are loaded already keep their addresses, and tracers that listen to them. */
nopal_probe *nopal_provider_add(nopal_provider *, const char *name, const nopal_arg *args, size_t n_args);

/* Makes all probes visible that are not yet so: 0, or an error. Each call that finds new probes takes a file descriptor, and
   no more than half of those the program may have are taken: better add many probes and load them once. */
int nopal_provider_load(nopal_provider *);

/* Hides all probes: 0, or an error. They can be loaded again, and are then where they were. */
int nopal_provider_unload(nopal_provider *);

/* Unloads and frees the provider and its probes, which no thread may use any more. NULL is allowed. */
void nopal_provider_destroy(nopal_provider *);

/* Where tracers find the object, /proc/PID/fd/N, with the pid of the child in a forked child; of several objects the
   newest. NULL while nothing is loaded. The text lives as long as the provider. */
const char *nopal_provider_path(const nopal_provider *);

/* 1 while a tracer listens, otherwise 0. Two comparisons, whatever the number of probes. */
int nopal_probe_enabled(const nopal_probe *);

/* 1: fired. 0: no tracer listens; nothing was looked at. Below 0: an error. Texts and bytes must be valid during the call. */
int nopal_probe_fire(nopal_probe *, const nopal_value *values, size_t n_values);

/* The probe's semaphore, to be tested without a call: above zero while a tracer listens. NULL while the probe is not
   loaded. The address stays readable until the provider is destroyed. (A tracer that does not know semaphores does not
   raise it; nopal_probe_enabled sees such a tracer, too.) */
const volatile uint16_t *nopal_probe_semaphore(const nopal_probe *);

/* What went wrong in this thread last, and what to do about it; never NULL. The text lives until the next error. */
const char *nopal_error(void);

/* Of the library: major << 16 | minor << 8 | patch. */
uint32_t nopal_runtime_version(void);

#ifdef __cplusplus
}
#endif

#endif
