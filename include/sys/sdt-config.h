/* What sys/sdt.h and nopal.h share: how one probe site looks to the assembler and the CPU, and how the compiler is
   asked for the size and the sign of an argument. Programs include sys/sdt.h or nopal.h, never this file.

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef _NOPAL_SDT_CONFIG_H

/* Found by -I it is still not the program's own code: what a project is warned of is its own. */
#if defined(__GNUC__) && !defined(__ASSEMBLER__)
# pragma GCC system_header
#endif

#define _NOPAL_SDT_CONFIG_H 1

/* The assembler knows the section flag "?": a note joins the comdat group of the function that it describes and goes
   away with it. Other projects test this name, so it is spelled as systemtap spells it. */
#ifndef _SDT_ASM_SECTION_AUTOGROUP_SUPPORT
# define _SDT_ASM_SECTION_AUTOGROUP_SUPPORT 1
#endif

#if _SDT_ASM_SECTION_AUTOGROUP_SUPPORT
# define _NOPAL_SDT_AUTOGROUP "?"
#else
# define _NOPAL_SDT_AUTOGROUP ""
#endif

/* The section flag "R" tells the linker to keep a section that nothing refers to. Assemblers of 2021 and later have
   it (binutils 2.36, LLVM 13); a compiler of that age stands for one. Define _NOPAL_SDT_RETAIN as 0 or 1 to overrule
   the guess. Without "R" the relocations of _NOPAL_SDT_KEEP do the same. */
#ifndef _NOPAL_SDT_RETAIN
# if defined __clang_major__
#  define _NOPAL_SDT_RETAIN (__clang_major__ >= 13)
# elif defined __GNUC__
#  define _NOPAL_SDT_RETAIN (__GNUC__ >= 11)
# else
#  define _NOPAL_SDT_RETAIN 0
# endif
#endif

#if _NOPAL_SDT_RETAIN
# define _NOPAL_SDT_BASE_FLAGS "aGR"
#else
# define _NOPAL_SDT_BASE_FLAGS "aG"
#endif

/* One site. Tracers put their breakpoint on the first byte, which is where the note points.

   x86-64: a one-byte nop, then a ten-byte nop, into which nopal writes its jump while somebody else's breakpoint may
   sit on the first byte. Never a five-byte nop: kernel 6.18 turns that into a call and so overwrites the red zone.
   arm64 and others: one nop; every instruction has the same size and can be replaced as a whole. */
#if defined __x86_64__
/* 90, then 66 2e 0f 1f 84 00 00 00 00 00; as numbers, since an assembler is free to encode a mnemonic shorter. */
# define _NOPAL_SDT_SITE nop; .8byte 0x841f0f2e66; .2byte 0
# define _NOPAL_SDT_RELOC_NONE R_X86_64_NONE
#elif defined __aarch64__
# define _NOPAL_SDT_SITE nop
# define _NOPAL_SDT_RELOC_NONE R_AARCH64_NONE
#elif defined __s390__ || defined __ia64__
# define _NOPAL_SDT_SITE nop 0
#else
# define _NOPAL_SDT_SITE nop
#endif

#if defined __LP64__
# define _NOPAL_SDT_ADDR .8byte
#else
# define _NOPAL_SDT_ADDR .4byte
#endif

#ifndef __ASSEMBLER__

/* Two steps, so that a macro given as provider, name or constraint is replaced before it becomes text. */
# define _NOPAL_SDT_TEXT(x) _NOPAL_SDT_TEXT_(x)
# define _NOPAL_SDT_TEXT_(x) #x

/* The byte in .stapsdt.base tells how far a file was moved after linking (prelink). One for each object and, by its
   comdat group, one for each linked file. Without it other tracers take the wrong address. */
# define _NOPAL_SDT_BASE						\
  "\t.ifndef _.stapsdt.base\n"						\
  "\t.pushsection .stapsdt.base," _NOPAL_SDT_TEXT(_NOPAL_SDT_BASE_FLAGS) ",\"progbits\",.stapsdt.base,comdat\n" \
  "\t.weak _.stapsdt.base\n"						\
  "\t.hidden _.stapsdt.base\n"						\
  "_.stapsdt.base:\n"							\
  "\t.space 1\n"							\
  "\t.size _.stapsdt.base, 1\n"						\
  "\t.popsection\n"							\
  "\t.endif\n"

/* A relocation that changes nothing, but makes the site refer to the symbol: --gc-sections then keeps it as long as it
   keeps the code. Notes do not count as a reference to every linker. */
# if defined _NOPAL_SDT_RELOC_NONE
#  define _NOPAL_SDT_KEEP(symbol)					\
  "\t.reloc 990b, " _NOPAL_SDT_TEXT(_NOPAL_SDT_RELOC_NONE) ", " symbol "\n"
# else
#  define _NOPAL_SDT_KEEP(symbol)
# endif

/* A site and its note: owner "stapsdt", type 3; site, base, semaphore (or 0), provider, name, operands.
   Everything is text for the assembler; `operands` is the directives that write the operands. */
# define _NOPAL_SDT_SITE_AND_NOTE(provider, name, semaphore, operands)	\
  "990:\t" _NOPAL_SDT_TEXT(_NOPAL_SDT_SITE) "\n"			\
  "\t.pushsection .note.stapsdt," _NOPAL_SDT_TEXT(_NOPAL_SDT_AUTOGROUP) ",\"note\"\n" \
  "\t.balign 4\n"							\
  "\t.4byte 992f-991f, 994f-993f, 3\n"					\
  "991:\t.asciz \"stapsdt\"\n"						\
  "992:\t.balign 4\n"							\
  "993:\t" _NOPAL_SDT_TEXT(_NOPAL_SDT_ADDR) " 990b, _.stapsdt.base, " semaphore "\n" \
  "\t.asciz \"" provider "\"\n"						\
  "\t.asciz \"" name "\"\n"						\
  operands								\
  "\t.byte 0\n"								\
  "994:\t.balign 4\n"							\
  "\t.popsection\n"							\
  _NOPAL_SDT_KEEP("_.stapsdt.base")					\
  _NOPAL_SDT_BASE

/* Where the compiler may leave an argument: a constant, memory or a register. GCC weighs them. No memory for clang,
   which would store each and every argument there, and on arm64, where it may be named by half of an address that no
   tracer can complete ([x0, #:lo12:.LANCHOR1]). */
# ifndef STAP_SDT_ARG_CONSTRAINT
#  if defined __powerpc__
#   define STAP_SDT_ARG_CONSTRAINT nZr
#  elif defined __arm__
#   define STAP_SDT_ARG_CONSTRAINT g
#  elif defined __aarch64__ || (defined __clang__ && defined __x86_64__)
#   define STAP_SDT_ARG_CONSTRAINT nr
#  else
#   define STAP_SDT_ARG_CONSTRAINT nor
#  endif
# endif

/* The n-th argument as two operands of an asm statement: its size in bytes, negative if it is signed, and its value. */
# define _NOPAL_SDT_ARG(n, x)						\
  [_sdt_s##n] "n" (_NOPAL_SDT_SIZE(x)), [_sdt_a##n] _NOPAL_SDT_TEXT(STAP_SDT_ARG_CONSTRAINT) (x)

/* One more operand for all arguments: bit n-1 is set if argument n is a floating-point number. GCC allows 30 operands
   in all, so twelve arguments cannot have three each. */
# define _NOPAL_SDT_FLOATS(bits) [_sdt_f] "n" (bits)

/* The text of the n-th argument, such as -4@%eax or 8f@%rax. `bit` is 1 << (n-1). */
# if defined __powerpc__
#  define _NOPAL_SDT_OPERAND(n) "%I[_sdt_a" #n "]%[_sdt_a" #n "]"
# elif defined __i386__
#  define _NOPAL_SDT_OPERAND(n) "%k[_sdt_a" #n "]"
# else
#  define _NOPAL_SDT_OPERAND(n) "%[_sdt_a" #n "]"
# endif
# define _NOPAL_SDT_FORMAT(n, bit)					\
  "\t.ascii \"%c[_sdt_s" #n "]\"\n"					\
  "\t.if %c[_sdt_f] & " #bit "\n"					\
  "\t.ascii \"f\"\n"							\
  "\t.endif\n"								\
  "\t.ascii \"@" _NOPAL_SDT_OPERAND(n) "\"\n"
# define _NOPAL_SDT_BLANK "\t.ascii \" \"\n"

/* Warnings of clang about an asm statement: on arm64 it would like a 32-bit argument printed as w0, while notes say x0,
   as GCC prints it; and C90 compilers need not know strings as long as a note. */
# if defined __clang__
#  define _NOPAL_SDT_ASM_BEGIN						\
  _Pragma("clang diagnostic push")					\
  _Pragma("clang diagnostic ignored \"-Wasm-operand-widths\"")	\
  _Pragma("clang diagnostic ignored \"-Woverlength-strings\"")
#  define _NOPAL_SDT_ASM_END _Pragma("clang diagnostic pop")
# else
#  define _NOPAL_SDT_ASM_BEGIN
#  define _NOPAL_SDT_ASM_END
# endif

/* What kind of value is x? The numbers are those of __builtin_classify_type, the same in GCC and clang. */
# define _NOPAL_SDT_IS_FLOAT(x) (__builtin_classify_type(x) == 8)
# define _NOPAL_SDT_IS_POINTER(x)					\
  (__builtin_classify_type(x) == 5 || __builtin_classify_type(x) == 14)

# ifdef __cplusplus

/* A header may be read inside extern "C", where templates are not allowed. */
extern "C++" {
#  pragma GCC diagnostic push
#  pragma GCC diagnostic ignored "-Wlong-long" /* of C++98 */

template <bool> struct __nopal_probe_argument_must_be_a_number_or_a_pointer;
template <> struct __nopal_probe_argument_must_be_a_number_or_a_pointer<true> { enum { __ok = 1 }; };

template <typename __T, bool __is_an_enum = __is_enum(__T)> struct __nopal_sdt_sign { enum { __value = 1 }; };
template <typename __T> struct __nopal_sdt_sign<__T, true> : __nopal_sdt_sign<__underlying_type(__T), false> {};
template <typename __T> struct __nopal_sdt_sign<__T &, false> : __nopal_sdt_sign<__T> {};
template <typename __T> struct __nopal_sdt_sign<const __T, false> : __nopal_sdt_sign<__T> {};
template <typename __T> struct __nopal_sdt_sign<volatile __T, false> : __nopal_sdt_sign<__T> {};
template <typename __T> struct __nopal_sdt_sign<const volatile __T, false> : __nopal_sdt_sign<__T> {};
template <> struct __nopal_sdt_sign<char, false> { enum { __value = char(-1) < char(1) ? -1 : 1 }; };
template <> struct __nopal_sdt_sign<wchar_t, false> { enum { __value = wchar_t(-1) < wchar_t(1) ? -1 : 1 }; };
template <> struct __nopal_sdt_sign<signed char, false> { enum { __value = -1 }; };
template <> struct __nopal_sdt_sign<short, false> { enum { __value = -1 }; };
template <> struct __nopal_sdt_sign<int, false> { enum { __value = -1 }; };
template <> struct __nopal_sdt_sign<long, false> { enum { __value = -1 }; };
template <> struct __nopal_sdt_sign<long long, false> { enum { __value = -1 }; };
#  if defined __SIZEOF_INT128__
__extension__ typedef __int128 __nopal_sdt_int128;
template <> struct __nopal_sdt_sign<__nopal_sdt_int128, false> { enum { __value = -1 }; };
#  endif
/* An array is passed as the address of its first element. */
template <typename __T, __SIZE_TYPE__ __n> struct __nopal_sdt_sign<__T[__n], false> { enum { __value = 1 }; };
template <typename __T, __SIZE_TYPE__ __n> struct __nopal_sdt_sign<const __T[__n], false> { enum { __value = 1 }; };
template <typename __T, __SIZE_TYPE__ __n> struct __nopal_sdt_sign<volatile __T[__n], false> { enum { __value = 1 }; };
template <typename __T, __SIZE_TYPE__ __n> struct __nopal_sdt_sign<const volatile __T[__n], false> { enum { __value = 1 }; };

#  pragma GCC diagnostic pop
}

#  define _NOPAL_SDT_INT int
#  define _NOPAL_SDT_SIGN(x) int(__nopal_sdt_sign<__typeof__(x)>::__value)
#  define _NOPAL_SDT_CHECK(x)						\
  (__nopal_probe_argument_must_be_a_number_or_a_pointer<		\
      !__is_class(__typeof__(x)) && !__is_union(__typeof__(x))>::__ok)

# else

/* Enums have the sign of the integer type that the compiler chose for them; everything that is not a signed integer
   counts as unsigned, numbers with a point included. */
#  if defined __SIZEOF_INT128__
#   define _NOPAL_SDT_SIGN_INT128 __int128: -1,
#  else
#   define _NOPAL_SDT_SIGN_INT128
#  endif
#  define _NOPAL_SDT_INT (int)
#  define _NOPAL_SDT_SIGN(x)						\
  _Generic((x), char: (char) -1 < (char) 1 ? -1 : 1, signed char: -1, short: -1, int: -1, long: -1, long long: -1, \
	   _NOPAL_SDT_SIGN_INT128 default: 1)
#  define _NOPAL_SDT_CHECK(x)						\
  sizeof(struct {							\
    char a_probe_argument_must_be_a_number_or_a_pointer			\
      [__builtin_classify_type(x) == 12 || __builtin_classify_type(x) == 13 ? -1 : 1]; \
  })

# endif

# define _NOPAL_SDT_SIZE(x)						\
  (__extension__ (_NOPAL_SDT_SIGN(x)					\
		  * _NOPAL_SDT_INT (_NOPAL_SDT_CHECK(x) * (_NOPAL_SDT_IS_POINTER(x) ? sizeof(void *) : sizeof(x)))))

#endif /* !__ASSEMBLER__ */

#endif
