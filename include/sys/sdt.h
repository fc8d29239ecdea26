/* <sys/sdt.h>: static probes for C, C++ and assembler programs, seen by nopal, bpftrace, SystemTap, perf, gdb, bcc.

     DTRACE_PROBE2(myserver, request__start, request_id, path);

   leaves a nop in the code and a note in the ELF file that tells where the nop is, what the probe is called and where
   its arguments are: in which register, at which place in memory, or which constant. Nothing reads the note while the
   program runs; until a tracer comes, the nop and whatever the compiler does to have the arguments at hand are all
   that a probe costs. A probe takes up to 12 arguments: integers of any size, pointers, enums, bool, float, double.
   An array counts as a pointer to its first element.

   This is nopal's own implementation; its public names and the notes it makes are those of systemtap's header.

   Decided when this header is read for the first time:
     _SDT_HAS_SEMAPHORES      if defined, each probe has a counter, PROVIDER_NAME_semaphore, that tracers raise while they
                              are interested. `dtrace -h` declares it and `dtrace -G` defines it; by hand it is
                              `unsigned short myserver_request__start_semaphore __attribute__((section(".probes")));`
     SDT_USE_VARIADIC         if defined, STAP_PROBEV exists
     STAP_SDT_ARG_CONSTRAINT  where arguments may be, in the letters of GCC's asm constraints; without quotes
   STAP_SDT_V1 and STAP_SDT_V2 change the header that `dtrace -h` writes: the name of the semaphore, its visibility.

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef _SYS_SDT_H

/* Found by -I it is still not the program's own code: what a project is warned of is its own. */
#if defined(__GNUC__) && !defined(__ASSEMBLER__)
# pragma GCC system_header
#endif

#define _SYS_SDT_H 1

#include "sdt-config.h"

/* 1. A probe with n arguments, each language in its own way.

   In assembler an argument is an operand with its size before it: DTRACE_PROBE1(myserver, tick, -4@%eax). */

#ifdef __ASSEMBLER__

	.macro _sdt_note_begin
	.pushsection .note.stapsdt,_NOPAL_SDT_AUTOGROUP,"note"
	.balign 4
	.4byte 992f-991f, 994f-993f, 3
991:	.asciz "stapsdt"
992:	.balign 4
993:	_NOPAL_SDT_ADDR 990b, _.stapsdt.base
	.endm

	.macro _sdt_note_end
994:	.balign 4
	.popsection
# ifdef _NOPAL_SDT_RELOC_NONE
	.reloc 990b, _NOPAL_SDT_RELOC_NONE, _.stapsdt.base
# endif
	.ifndef _.stapsdt.base
	.pushsection .stapsdt.base,_NOPAL_SDT_BASE_FLAGS,"progbits",.stapsdt.base,comdat
	.weak _.stapsdt.base
	.hidden _.stapsdt.base
_.stapsdt.base:
	.space 1
	.size _.stapsdt.base, 1
	.popsection
	.endif
	.endm

# ifdef _SDT_HAS_SEMAPHORES
#  define _SDT_SEMAPHORE(provider, name) provider##_##name##_semaphore
# else
#  define _SDT_SEMAPHORE(provider, name) 0
# endif

# define _SDT_PROBE(provider, name, n, args)				\
  990: _NOPAL_SDT_SITE ;						\
  _sdt_note_begin ;							\
  _NOPAL_SDT_ADDR _SDT_SEMAPHORE(provider, name) ;			\
  .asciz _SDT_QUOTE(provider) ;						\
  .asciz _SDT_QUOTE(name) ;						\
  _SDT_OPERANDS_##n args ;						\
  .byte 0 ;								\
  _sdt_note_end
# define _SDT_QUOTE(x) #x
# define _SDT_OPERANDS_0()
# define _SDT_OPERANDS_1(a) .ascii #a
# define _SDT_OPERANDS_2(a, b) _SDT_OPERANDS_1(a), " ", #b
# define _SDT_OPERANDS_3(a, b, c) _SDT_OPERANDS_2(a, b), " ", #c
# define _SDT_OPERANDS_4(a, b, c, d) _SDT_OPERANDS_3(a, b, c), " ", #d
# define _SDT_OPERANDS_5(a, b, c, d, e) _SDT_OPERANDS_4(a, b, c, d), " ", #e
# define _SDT_OPERANDS_6(a, b, c, d, e, f) _SDT_OPERANDS_5(a, b, c, d, e), " ", #f
# define _SDT_OPERANDS_7(a, b, c, d, e, f, g) _SDT_OPERANDS_6(a, b, c, d, e, f), " ", #g
# define _SDT_OPERANDS_8(a, b, c, d, e, f, g, h) _SDT_OPERANDS_7(a, b, c, d, e, f, g), " ", #h
# define _SDT_OPERANDS_9(a, b, c, d, e, f, g, h, i) _SDT_OPERANDS_8(a, b, c, d, e, f, g, h), " ", #i
# define _SDT_OPERANDS_10(a, b, c, d, e, f, g, h, i, j) _SDT_OPERANDS_9(a, b, c, d, e, f, g, h, i), " ", #j
# define _SDT_OPERANDS_11(a, b, c, d, e, f, g, h, i, j, k) _SDT_OPERANDS_10(a, b, c, d, e, f, g, h, i, j), " ", #k
# define _SDT_OPERANDS_12(a, b, c, d, e, f, g, h, i, j, k, l) _SDT_OPERANDS_11(a, b, c, d, e, f, g, h, i, j, k), " ", #l

#else /* C and C++ */

# ifdef _SDT_HAS_SEMAPHORES
/* The empty asm statement lets the compiler know that the semaphore is in use, which matters with LTO; the linker knows
   by _NOPAL_SDT_KEEP, which matters with --gc-sections. The name passes through macros because the generated header
   of STAP_SDT_V1 renames it that way. */
#  define _SDT_SEMAPHORE(provider, name) _NOPAL_SDT_TEXT(provider##_##name##_semaphore)
#  define _SDT_USE_SEMAPHORE(provider, name)				\
  __asm__ __volatile__ ("" : : "m" (provider##_##name##_semaphore));
#  define _SDT_KEEP_SEMAPHORE(provider, name) _NOPAL_SDT_KEEP(_SDT_SEMAPHORE(provider, name))
# else
#  define _SDT_SEMAPHORE(provider, name) "0"
#  define _SDT_USE_SEMAPHORE(provider, name)
#  define _SDT_KEEP_SEMAPHORE(provider, name)
# endif

# define _SDT_ASM(provider, name, operands)				\
  _NOPAL_SDT_SITE_AND_NOTE(_NOPAL_SDT_TEXT(provider), _NOPAL_SDT_TEXT(name), _SDT_SEMAPHORE(provider, name), operands) \
  _SDT_KEEP_SEMAPHORE(provider, name)

/* "memory": a tracer may read what an argument points to, so it must have been written by then. */
# define _SDT_PROBE(provider, name, n, args)				\
  do {									\
    _SDT_USE_SEMAPHORE(provider, name)					\
    _NOPAL_SDT_ASM_BEGIN						\
    __asm__ __volatile__ (_SDT_ASM(provider, name, _SDT_TEMPLATE_##n) : : _SDT_OPERANDS_##n args : "memory"); \
    _NOPAL_SDT_ASM_END							\
  } while (0)

/* What the assembler writes into the note for n arguments ... */
# define _SDT_TEMPLATE_0 ""
# define _SDT_TEMPLATE_1 _NOPAL_SDT_FORMAT(1, 1)
# define _SDT_TEMPLATE_2 _SDT_TEMPLATE_1 _NOPAL_SDT_BLANK _NOPAL_SDT_FORMAT(2, 2)
# define _SDT_TEMPLATE_3 _SDT_TEMPLATE_2 _NOPAL_SDT_BLANK _NOPAL_SDT_FORMAT(3, 4)
# define _SDT_TEMPLATE_4 _SDT_TEMPLATE_3 _NOPAL_SDT_BLANK _NOPAL_SDT_FORMAT(4, 8)
# define _SDT_TEMPLATE_5 _SDT_TEMPLATE_4 _NOPAL_SDT_BLANK _NOPAL_SDT_FORMAT(5, 16)
# define _SDT_TEMPLATE_6 _SDT_TEMPLATE_5 _NOPAL_SDT_BLANK _NOPAL_SDT_FORMAT(6, 32)
# define _SDT_TEMPLATE_7 _SDT_TEMPLATE_6 _NOPAL_SDT_BLANK _NOPAL_SDT_FORMAT(7, 64)
# define _SDT_TEMPLATE_8 _SDT_TEMPLATE_7 _NOPAL_SDT_BLANK _NOPAL_SDT_FORMAT(8, 128)
# define _SDT_TEMPLATE_9 _SDT_TEMPLATE_8 _NOPAL_SDT_BLANK _NOPAL_SDT_FORMAT(9, 256)
# define _SDT_TEMPLATE_10 _SDT_TEMPLATE_9 _NOPAL_SDT_BLANK _NOPAL_SDT_FORMAT(10, 512)
# define _SDT_TEMPLATE_11 _SDT_TEMPLATE_10 _NOPAL_SDT_BLANK _NOPAL_SDT_FORMAT(11, 1024)
# define _SDT_TEMPLATE_12 _SDT_TEMPLATE_11 _NOPAL_SDT_BLANK _NOPAL_SDT_FORMAT(12, 2048)

/* ... from the values that the compiler gives, ... */
# define _SDT_VALUES_1(a) _NOPAL_SDT_ARG(1, a)
# define _SDT_VALUES_2(a, b) _SDT_VALUES_1(a), _NOPAL_SDT_ARG(2, b)
# define _SDT_VALUES_3(a, b, c) _SDT_VALUES_2(a, b), _NOPAL_SDT_ARG(3, c)
# define _SDT_VALUES_4(a, b, c, d) _SDT_VALUES_3(a, b, c), _NOPAL_SDT_ARG(4, d)
# define _SDT_VALUES_5(a, b, c, d, e) _SDT_VALUES_4(a, b, c, d), _NOPAL_SDT_ARG(5, e)
# define _SDT_VALUES_6(a, b, c, d, e, f) _SDT_VALUES_5(a, b, c, d, e), _NOPAL_SDT_ARG(6, f)
# define _SDT_VALUES_7(a, b, c, d, e, f, g) _SDT_VALUES_6(a, b, c, d, e, f), _NOPAL_SDT_ARG(7, g)
# define _SDT_VALUES_8(a, b, c, d, e, f, g, h) _SDT_VALUES_7(a, b, c, d, e, f, g), _NOPAL_SDT_ARG(8, h)
# define _SDT_VALUES_9(a, b, c, d, e, f, g, h, i) _SDT_VALUES_8(a, b, c, d, e, f, g, h), _NOPAL_SDT_ARG(9, i)
# define _SDT_VALUES_10(a, b, c, d, e, f, g, h, i, j)			\
  _SDT_VALUES_9(a, b, c, d, e, f, g, h, i), _NOPAL_SDT_ARG(10, j)
# define _SDT_VALUES_11(a, b, c, d, e, f, g, h, i, j, k)		\
  _SDT_VALUES_10(a, b, c, d, e, f, g, h, i, j), _NOPAL_SDT_ARG(11, k)
# define _SDT_VALUES_12(a, b, c, d, e, f, g, h, i, j, k, l)		\
  _SDT_VALUES_11(a, b, c, d, e, f, g, h, i, j, k), _NOPAL_SDT_ARG(12, l)

/* ... and a bit for each that is a floating-point number. */
# define _SDT_BITS_1(a) _NOPAL_SDT_IS_FLOAT(a)
# define _SDT_BITS_2(a, b) _SDT_BITS_1(a) | _NOPAL_SDT_IS_FLOAT(b) << 1
# define _SDT_BITS_3(a, b, c) _SDT_BITS_2(a, b) | _NOPAL_SDT_IS_FLOAT(c) << 2
# define _SDT_BITS_4(a, b, c, d) _SDT_BITS_3(a, b, c) | _NOPAL_SDT_IS_FLOAT(d) << 3
# define _SDT_BITS_5(a, b, c, d, e) _SDT_BITS_4(a, b, c, d) | _NOPAL_SDT_IS_FLOAT(e) << 4
# define _SDT_BITS_6(a, b, c, d, e, f) _SDT_BITS_5(a, b, c, d, e) | _NOPAL_SDT_IS_FLOAT(f) << 5
# define _SDT_BITS_7(a, b, c, d, e, f, g) _SDT_BITS_6(a, b, c, d, e, f) | _NOPAL_SDT_IS_FLOAT(g) << 6
# define _SDT_BITS_8(a, b, c, d, e, f, g, h) _SDT_BITS_7(a, b, c, d, e, f, g) | _NOPAL_SDT_IS_FLOAT(h) << 7
# define _SDT_BITS_9(a, b, c, d, e, f, g, h, i) _SDT_BITS_8(a, b, c, d, e, f, g, h) | _NOPAL_SDT_IS_FLOAT(i) << 8
# define _SDT_BITS_10(a, b, c, d, e, f, g, h, i, j)			\
  _SDT_BITS_9(a, b, c, d, e, f, g, h, i) | _NOPAL_SDT_IS_FLOAT(j) << 9
# define _SDT_BITS_11(a, b, c, d, e, f, g, h, i, j, k)			\
  _SDT_BITS_10(a, b, c, d, e, f, g, h, i, j) | _NOPAL_SDT_IS_FLOAT(k) << 10
# define _SDT_BITS_12(a, b, c, d, e, f, g, h, i, j, k, l)		\
  _SDT_BITS_11(a, b, c, d, e, f, g, h, i, j, k) | _NOPAL_SDT_IS_FLOAT(l) << 11

# define _SDT_OPERANDS_0()
# define _SDT_OPERANDS_1(a) _SDT_OPERANDS(1, (a))
# define _SDT_OPERANDS_2(a, b) _SDT_OPERANDS(2, (a, b))
# define _SDT_OPERANDS_3(a, b, c) _SDT_OPERANDS(3, (a, b, c))
# define _SDT_OPERANDS_4(a, b, c, d) _SDT_OPERANDS(4, (a, b, c, d))
# define _SDT_OPERANDS_5(a, b, c, d, e) _SDT_OPERANDS(5, (a, b, c, d, e))
# define _SDT_OPERANDS_6(a, b, c, d, e, f) _SDT_OPERANDS(6, (a, b, c, d, e, f))
# define _SDT_OPERANDS_7(a, b, c, d, e, f, g) _SDT_OPERANDS(7, (a, b, c, d, e, f, g))
# define _SDT_OPERANDS_8(a, b, c, d, e, f, g, h) _SDT_OPERANDS(8, (a, b, c, d, e, f, g, h))
# define _SDT_OPERANDS_9(a, b, c, d, e, f, g, h, i) _SDT_OPERANDS(9, (a, b, c, d, e, f, g, h, i))
# define _SDT_OPERANDS_10(a, b, c, d, e, f, g, h, i, j) _SDT_OPERANDS(10, (a, b, c, d, e, f, g, h, i, j))
# define _SDT_OPERANDS_11(a, b, c, d, e, f, g, h, i, j, k) _SDT_OPERANDS(11, (a, b, c, d, e, f, g, h, i, j, k))
# define _SDT_OPERANDS_12(a, b, c, d, e, f, g, h, i, j, k, l) _SDT_OPERANDS(12, (a, b, c, d, e, f, g, h, i, j, k, l))
# define _SDT_OPERANDS(n, args) _NOPAL_SDT_FLOATS(_SDT_BITS_##n args), _SDT_VALUES_##n args

#endif

/* 2. The names that programs use. */

#define STAP_PROBE(provider, name) _SDT_PROBE(provider, name, 0, ())
#define STAP_PROBE1(provider, name, a) _SDT_PROBE(provider, name, 1, (a))
#define STAP_PROBE2(provider, name, a, b) _SDT_PROBE(provider, name, 2, (a, b))
#define STAP_PROBE3(provider, name, a, b, c) _SDT_PROBE(provider, name, 3, (a, b, c))
#define STAP_PROBE4(provider, name, a, b, c, d) _SDT_PROBE(provider, name, 4, (a, b, c, d))
#define STAP_PROBE5(provider, name, a, b, c, d, e) _SDT_PROBE(provider, name, 5, (a, b, c, d, e))
#define STAP_PROBE6(provider, name, a, b, c, d, e, f) _SDT_PROBE(provider, name, 6, (a, b, c, d, e, f))
#define STAP_PROBE7(provider, name, a, b, c, d, e, f, g) _SDT_PROBE(provider, name, 7, (a, b, c, d, e, f, g))
#define STAP_PROBE8(provider, name, a, b, c, d, e, f, g, h) _SDT_PROBE(provider, name, 8, (a, b, c, d, e, f, g, h))
#define STAP_PROBE9(provider, name, a, b, c, d, e, f, g, h, i)		\
  _SDT_PROBE(provider, name, 9, (a, b, c, d, e, f, g, h, i))
#define STAP_PROBE10(provider, name, a, b, c, d, e, f, g, h, i, j)	\
  _SDT_PROBE(provider, name, 10, (a, b, c, d, e, f, g, h, i, j))
#define STAP_PROBE11(provider, name, a, b, c, d, e, f, g, h, i, j, k)	\
  _SDT_PROBE(provider, name, 11, (a, b, c, d, e, f, g, h, i, j, k))
#define STAP_PROBE12(provider, name, a, b, c, d, e, f, g, h, i, j, k, l) \
  _SDT_PROBE(provider, name, 12, (a, b, c, d, e, f, g, h, i, j, k, l))

#define DTRACE_PROBE(provider, name) STAP_PROBE(provider, name)
#define DTRACE_PROBE1(provider, name, a) STAP_PROBE1(provider, name, a)
#define DTRACE_PROBE2(provider, name, a, b) STAP_PROBE2(provider, name, a, b)
#define DTRACE_PROBE3(provider, name, a, b, c) STAP_PROBE3(provider, name, a, b, c)
#define DTRACE_PROBE4(provider, name, a, b, c, d) STAP_PROBE4(provider, name, a, b, c, d)
#define DTRACE_PROBE5(provider, name, a, b, c, d, e) STAP_PROBE5(provider, name, a, b, c, d, e)
#define DTRACE_PROBE6(provider, name, a, b, c, d, e, f) STAP_PROBE6(provider, name, a, b, c, d, e, f)
#define DTRACE_PROBE7(provider, name, a, b, c, d, e, f, g) STAP_PROBE7(provider, name, a, b, c, d, e, f, g)
#define DTRACE_PROBE8(provider, name, a, b, c, d, e, f, g, h) STAP_PROBE8(provider, name, a, b, c, d, e, f, g, h)
#define DTRACE_PROBE9(provider, name, a, b, c, d, e, f, g, h, i) STAP_PROBE9(provider, name, a, b, c, d, e, f, g, h, i)
#define DTRACE_PROBE10(provider, name, a, b, c, d, e, f, g, h, i, j)	\
  STAP_PROBE10(provider, name, a, b, c, d, e, f, g, h, i, j)
#define DTRACE_PROBE11(provider, name, a, b, c, d, e, f, g, h, i, j, k)	\
  STAP_PROBE11(provider, name, a, b, c, d, e, f, g, h, i, j, k)
#define DTRACE_PROBE12(provider, name, a, b, c, d, e, f, g, h, i, j, k, l) \
  STAP_PROBE12(provider, name, a, b, c, d, e, f, g, h, i, j, k, l)

/* 3. Forms that need macros with any number of arguments: from C99 and C++11 on, or where asked for. */

#if defined SDT_USE_VARIADIC || (defined __STDC_VERSION__ && __STDC_VERSION__ >= 199901L) \
    || (defined __cplusplus && __cplusplus >= 201103L)

# define _SDT_COUNT(...) _SDT_COUNT_(__VA_ARGS__, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, ~, ~)
# define _SDT_COUNT_(p1, p2, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, n, ...) n

/* STAP_PROBEV(provider, name, ...): the number of arguments, 0 to 12, is counted. */
# ifdef SDT_USE_VARIADIC
#  define STAP_PROBEV(...) _SDT_PROBEV(_SDT_COUNT(__VA_ARGS__), (__VA_ARGS__))
#  define _SDT_PROBEV(n, all) _SDT_PROBEV_(n, all)
#  define _SDT_PROBEV_(n, all) _SDT_PROBEV_##n all
#  define _SDT_PROBEV_0(...) STAP_PROBE(__VA_ARGS__)
#  define _SDT_PROBEV_1(...) STAP_PROBE1(__VA_ARGS__)
#  define _SDT_PROBEV_2(...) STAP_PROBE2(__VA_ARGS__)
#  define _SDT_PROBEV_3(...) STAP_PROBE3(__VA_ARGS__)
#  define _SDT_PROBEV_4(...) STAP_PROBE4(__VA_ARGS__)
#  define _SDT_PROBEV_5(...) STAP_PROBE5(__VA_ARGS__)
#  define _SDT_PROBEV_6(...) STAP_PROBE6(__VA_ARGS__)
#  define _SDT_PROBEV_7(...) STAP_PROBE7(__VA_ARGS__)
#  define _SDT_PROBEV_8(...) STAP_PROBE8(__VA_ARGS__)
#  define _SDT_PROBEV_9(...) STAP_PROBE9(__VA_ARGS__)
#  define _SDT_PROBEV_10(...) STAP_PROBE10(__VA_ARGS__)
#  define _SDT_PROBEV_11(...) STAP_PROBE11(__VA_ARGS__)
#  define _SDT_PROBEV_12(...) STAP_PROBE12(__VA_ARGS__)
# endif

/* STAP_PROBE_ASM(provider, name, operands) is text for an asm statement of one's own, with the probe at that place:

     asm ("before\n" STAP_PROBE_ASM(provider, name, -4@%eax 8@8(%rsi)) "after");

   The operands stand as the note shall have them; in an asm statement that has operands itself, % is written %%.
   Or the compiler finds them, as it does for DTRACE_PROBE:

     asm ("before\n" STAP_PROBE_ASM(provider, name, STAP_PROBE_ASM_TEMPLATE(2)) "after"
	  : : STAP_PROBE_ASM_OPERANDS(2, count, path)); */
# ifndef __ASSEMBLER__
#  define STAP_PROBE_ASM(provider, ...) _SDT_PROBE_ASM(provider, __VA_ARGS__)
#  define STAP_PROBE_ASM_TEMPLATE(n) _SDT_TEMPLATE_##n "", _SDT_15_MORE, ~
#  define STAP_PROBE_ASM_OPERANDS(n, ...) _SDT_OPERANDS_##n(__VA_ARGS__)

/* Raw operands are to become text and a template is text already. A template is told by the 16 useless words that
   follow it; raw operands have a comma only inside brackets or, on arm64, one for each place in memory. */
#  define _SDT_15_MORE ~, ~, ~, ~, ~, ~, ~, ~, ~, ~, ~, ~, ~, ~, ~
#  define _SDT_PROBE_ASM(provider, name, ...)				\
  _SDT_PROBE_ASM_1(_SDT_RAW_OR_TEMPLATE(__VA_ARGS__), provider, name, __VA_ARGS__)
#  define _SDT_PROBE_ASM_1(which, provider, name, ...) _SDT_PROBE_ASM_2(which, provider, name, __VA_ARGS__)
#  define _SDT_PROBE_ASM_2(which, provider, name, ...) _SDT_PROBE_ASM_##which(provider, name, __VA_ARGS__)
#  define _SDT_RAW_OR_TEMPLATE(...)					\
  _SDT_WORD_18(__VA_ARGS__, TEMPLATE, RAW, RAW, RAW, RAW, RAW, RAW, RAW, RAW, RAW, RAW, RAW, RAW, RAW, RAW, RAW, RAW, ~)
#  define _SDT_WORD_18(w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15, w16, w17, word, ...) word
#  define _SDT_PROBE_ASM_RAW(provider, name, ...)			\
  _SDT_ASM(provider, name, "\t.ascii \"" _SDT_RAW_TEXT(__VA_ARGS__) "\"\n")
#  define _SDT_RAW_TEXT(...) #__VA_ARGS__
#  define _SDT_PROBE_ASM_TEMPLATE(provider, name, template_, ...) _SDT_ASM(provider, name, template_)
# endif

#endif

#endif
