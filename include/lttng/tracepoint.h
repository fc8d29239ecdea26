/* <lttng/tracepoint.h>: LTTng's macros for tracepoints, which here become ordinary probes.

   Programs that were written for LTTng-UST 2.0 to 2.13 compile unchanged. Each tracepoint is a USDT probe with a
   semaphore and a nopal note: nopal, bpftrace, gdb, perf and systemtap see it as PROVIDER:NAME, and no daemon, socket or
   library is needed while the program runs. Arguments and fields are evaluated only while somebody traces.

   A field that is a number, an enum or a string is an operand of the probe, for the first ten of them. All others are
   packed into a block, whose address and length are operands 11 and 12. The nopal note tells which is where.

   C99 or C++11, GCC or clang, Linux on x86-64 or arm64; elsewhere tracepoints compile to nothing.

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef _LTTNG_TRACEPOINT_H
#define _LTTNG_TRACEPOINT_H 1

#pragma GCC system_header

/* Programs rely on what LTTng's header brings along: Valkey, for one, has fork() from here. */
#include <assert.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../sys/sdt-config.h"
#include "ust-config.h"

#if defined __linux__ && defined __LP64__ && (defined __x86_64__ || defined __aarch64__)
# define _NOPAL_TP_ON 1
#else
# define _NOPAL_TP_ON 0
#endif

/* 1. In a program.

   lttng_ust_tracepoint(provider, name, arguments...)  the arguments are evaluated only if a tracer listens
   lttng_ust_tracepoint_enabled(provider, name)        whether one does
   lttng_ust_do_tracepoint(provider, name, ...)        for use below lttng_ust_tracepoint_enabled() */

#define lttng_ust_tracepoint(provider, name, ...)			\
  do {									\
    if (_NOPAL_TP_IS_ENABLED(provider, name))				\
      _NOPAL_TP_FUNCTION(provider, name)(__VA_ARGS__);			\
  } while (0)
#define lttng_ust_tracepoint_enabled(provider, name) _NOPAL_TP_IS_ENABLED(provider, name)
#define lttng_ust_do_tracepoint(provider, name, ...) _NOPAL_TP_FUNCTION(provider, name)(__VA_ARGS__)

/* 2. In the header of a provider. These words are read several times, each time with another meaning
   (tracepoint-event.h); the first time, here, they declare functions. */

#define LTTNG_UST_TRACEPOINT_EVENT(provider, name, args, fields)	\
  _NOPAL_TP_CLASS(provider, name, args, fields)				\
  _NOPAL_TP_INSTANCE(provider, name, provider, name, args)
#define LTTNG_UST_TRACEPOINT_EVENT_CLASS(provider, name, args, fields) _NOPAL_TP_CLASS(provider, name, args, fields)
#define LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(class_provider, class_name, provider, name, args) \
  _NOPAL_TP_INSTANCE(class_provider, class_name, provider, name, args)
#define LTTNG_UST_TRACEPOINT_ENUM(provider, name, values) _NOPAL_TP_TABLE(provider, name, values)
#define LTTNG_UST_TRACEPOINT_LOGLEVEL(provider, name, level) _NOPAL_TP_LEVEL(provider, name, level)
#define LTTNG_UST_TRACEPOINT_MODEL_EMF_URI(provider, name, uri) _NOPAL_TP_MODEL(provider, name, uri)

#define LTTNG_UST_TP_ARGS(...) (__VA_ARGS__)
#define LTTNG_UST_TP_FIELDS(...) (__VA_ARGS__)
#define LTTNG_UST_TP_ENUM_VALUES(...) (__VA_ARGS__)

/* Constants, not macros: lttng_ust_tracelog() makes names from them. */
enum lttng_ust_tracepoint_loglevel {
  LTTNG_UST_TRACEPOINT_LOGLEVEL_EMERG = 0,
  LTTNG_UST_TRACEPOINT_LOGLEVEL_ALERT = 1,
  LTTNG_UST_TRACEPOINT_LOGLEVEL_CRIT = 2,
  LTTNG_UST_TRACEPOINT_LOGLEVEL_ERR = 3,
  LTTNG_UST_TRACEPOINT_LOGLEVEL_WARNING = 4,
  LTTNG_UST_TRACEPOINT_LOGLEVEL_NOTICE = 5,
  LTTNG_UST_TRACEPOINT_LOGLEVEL_INFO = 6,
  LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_SYSTEM = 7,
  LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_PROGRAM = 8,
  LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_PROCESS = 9,
  LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_MODULE = 10,
  LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_UNIT = 11,
  LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_FUNCTION = 12,
  LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_LINE = 13,
  LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG = 14
};

/* The rest is how it is done.

   3. Fields. All of LTTng's come down to seven, which tracepoint-event.h defines anew for each reading. The last
   parameter is further items for the nopal note. */

#define lttng_ust_field_integer(type, name, expr) _NOPAL_TP_INT(type, name, expr, "")
#define lttng_ust_field_integer_hex(type, name, expr) _NOPAL_TP_INT(type, name, expr, _NOPAL_TP_HEX)
#define lttng_ust_field_integer_network(type, name, expr) _NOPAL_TP_INT(type, name, expr, _NOPAL_TP_BIG)
#define lttng_ust_field_integer_network_hex(type, name, expr) \
  _NOPAL_TP_INT(type, name, expr, _NOPAL_TP_BIG _NOPAL_TP_HEX)
#define lttng_ust_field_integer_nowrite(type, name, expr) _NOPAL_TP_INT(type, name, expr, _NOPAL_TP_NOWRITE)

#define lttng_ust_field_float(type, name, expr) _NOPAL_TP_FLOAT(type, name, expr, "")
#define lttng_ust_field_float_nowrite(type, name, expr) _NOPAL_TP_FLOAT(type, name, expr, _NOPAL_TP_NOWRITE)

#define lttng_ust_field_string(name, expr) _NOPAL_TP_STRING(name, expr, "")
#define lttng_ust_field_string_nowrite(name, expr) _NOPAL_TP_STRING(name, expr, _NOPAL_TP_NOWRITE)

#define lttng_ust_field_enum(provider, table, type, name, expr) _NOPAL_TP_ENUM(provider, table, type, name, expr, "")
#define lttng_ust_field_enum_nowrite(provider, table, type, name, expr)	\
  _NOPAL_TP_ENUM(provider, table, type, name, expr, _NOPAL_TP_NOWRITE)
#define lttng_ust_field_enum_value(label, value) _NOPAL_TP_LABEL(label, value, value)
#define lttng_ust_field_enum_range(label, first, last) _NOPAL_TP_LABEL(label, first, last)
#define lttng_ust_field_enum_auto(label) _NOPAL_TP_LABEL_AUTO(label)

#define lttng_ust_field_array(type, name, expr, count) _NOPAL_TP_ARRAY(type, name, expr, count, 0, "")
#define lttng_ust_field_array_hex(type, name, expr, count) _NOPAL_TP_ARRAY(type, name, expr, count, 0, _NOPAL_TP_HEX)
#define lttng_ust_field_array_network(type, name, expr, count) \
  _NOPAL_TP_ARRAY(type, name, expr, count, 0, _NOPAL_TP_BIG)
#define lttng_ust_field_array_network_hex(type, name, expr, count) \
  _NOPAL_TP_ARRAY(type, name, expr, count, 0, _NOPAL_TP_BIG _NOPAL_TP_HEX)
#define lttng_ust_field_array_nowrite(type, name, expr, count) \
  _NOPAL_TP_ARRAY(type, name, expr, count, 0, _NOPAL_TP_NOWRITE)
#define lttng_ust_field_array_nowrite_hex(type, name, expr, count) \
  _NOPAL_TP_ARRAY(type, name, expr, count, 0, _NOPAL_TP_NOWRITE _NOPAL_TP_HEX)
#define lttng_ust_field_array_network_nowrite(type, name, expr, count) \
  _NOPAL_TP_ARRAY(type, name, expr, count, 0, _NOPAL_TP_BIG _NOPAL_TP_NOWRITE)
#define lttng_ust_field_array_network_nowrite_hex(type, name, expr, count) \
  _NOPAL_TP_ARRAY(type, name, expr, count, 0, _NOPAL_TP_BIG _NOPAL_TP_NOWRITE _NOPAL_TP_HEX)
#define lttng_ust_field_array_text(type, name, expr, count) _NOPAL_TP_ARRAY(type, name, expr, count, 1, "")
#define lttng_ust_field_array_text_nowrite(type, name, expr, count) \
  _NOPAL_TP_ARRAY(type, name, expr, count, 1, _NOPAL_TP_NOWRITE)

#define lttng_ust_field_sequence(type, name, expr, length_type, length) \
  _NOPAL_TP_SEQUENCE(type, name, expr, length_type, length, 0, "")
#define lttng_ust_field_sequence_hex(type, name, expr, length_type, length) \
  _NOPAL_TP_SEQUENCE(type, name, expr, length_type, length, 0, _NOPAL_TP_HEX)
#define lttng_ust_field_sequence_network(type, name, expr, length_type, length) \
  _NOPAL_TP_SEQUENCE(type, name, expr, length_type, length, 0, _NOPAL_TP_BIG)
#define lttng_ust_field_sequence_network_hex(type, name, expr, length_type, length) \
  _NOPAL_TP_SEQUENCE(type, name, expr, length_type, length, 0, _NOPAL_TP_BIG _NOPAL_TP_HEX)
#define lttng_ust_field_sequence_nowrite(type, name, expr, length_type, length) \
  _NOPAL_TP_SEQUENCE(type, name, expr, length_type, length, 0, _NOPAL_TP_NOWRITE)
#define lttng_ust_field_sequence_nowrite_hex(type, name, expr, length_type, length) \
  _NOPAL_TP_SEQUENCE(type, name, expr, length_type, length, 0, _NOPAL_TP_NOWRITE _NOPAL_TP_HEX)
#define lttng_ust_field_sequence_network_nowrite(type, name, expr, length_type, length) \
  _NOPAL_TP_SEQUENCE(type, name, expr, length_type, length, 0, _NOPAL_TP_BIG _NOPAL_TP_NOWRITE)
#define lttng_ust_field_sequence_network_nowrite_hex(type, name, expr, length_type, length) \
  _NOPAL_TP_SEQUENCE(type, name, expr, length_type, length, 0, _NOPAL_TP_BIG _NOPAL_TP_NOWRITE _NOPAL_TP_HEX)
#define lttng_ust_field_sequence_text(type, name, expr, length_type, length) \
  _NOPAL_TP_SEQUENCE(type, name, expr, length_type, length, 1, "")
#define lttng_ust_field_sequence_text_nowrite(type, name, expr, length_type, length) \
  _NOPAL_TP_SEQUENCE(type, name, expr, length_type, length, 1, _NOPAL_TP_NOWRITE)

#define lttng_ust_field_unused(expr) _NOPAL_TP_UNUSED(expr)

/* Items of the nopal note, docs/formats.md section 3. */
#define _NOPAL_TP_BIG "\t.2byte 0x17, 1\n\t.byte 2\n"
#define _NOPAL_TP_HEX "\t.2byte 0x18, 1\n\t.byte 16\n"
#define _NOPAL_TP_NOWRITE "\t.2byte 0x1b, 0\n"

/* 4. Names. A tracepoint is a function, which evaluates the fields and passes the probe's site, and a semaphore. Both
   may be in another file than the program that calls: a library of providers, say. So both are visible to the dynamic
   linker, and the semaphore's address comes from the global offset table; a copy of the semaphore in the program, which
   the linker would otherwise make, would never change. Where the file is the same the linker turns the load into an
   address computation. */

#define _NOPAL_TP_PASTE(a, b, c, d) _NOPAL_TP_PASTE_(a, b, c, d)
#define _NOPAL_TP_PASTE_(a, b, c, d) a##b##c##d
#define _NOPAL_TP_FUNCTION(provider, name) _NOPAL_TP_PASTE(__nopal_tracepoint_, provider, ___, name)
#define _NOPAL_TP_SEMAPHORE(provider, name) \
  _NOPAL_SDT_TEXT(_NOPAL_TP_PASTE(__nopal_semaphore_, provider, ___, name))

#if !_NOPAL_TP_ON
# define _NOPAL_TP_IS_ENABLED(provider, name) 0
#else
# define _NOPAL_TP_IS_ENABLED(provider, name)				\
  __builtin_expect(__extension__ ({					\
    long _nopal_is_enabled;						\
    _NOPAL_TP_TEST(_NOPAL_TP_SEMAPHORE(provider, name), _nopal_is_enabled); \
    _nopal_is_enabled;							\
  }), 0)
# if defined __x86_64__
#  define _NOPAL_TP_TEST(symbol, result)				\
  long _nopal_address;							\
  __asm__ __volatile__ ("\tmov{q " symbol "@GOTPCREL(%%rip), %0| %0, qword ptr " symbol "@GOTPCREL[rip]}\n" \
			"\tcmp{w $0, (%0)| word ptr [%0], 0}\n" : "=&r" (_nopal_address), "=@ccne" (result))
# else
#  define _NOPAL_TP_TEST(symbol, result)				\
  __asm__ __volatile__ ("\tadrp %0, :got:" symbol "\n"			\
			"\tldr %0, [%0, :got_lo12:" symbol "]\n"	\
			"\tldrh %w0, [%0]\n" : "=r" (result))
# endif
#endif

/* 5. Lists of arguments: (int, a, char *, b) as "int a, char *b" and as "a, b", with a comma before it or not. */

#define _NOPAL_TP_PROTO(...) _NOPAL_TP_BY_COUNT(_NOPAL_TP_PROTO_, __VA_ARGS__)(__VA_ARGS__)
#define _NOPAL_TP_MORE_PROTO(...) _NOPAL_TP_BY_COUNT(_NOPAL_TP_MORE_PROTO_, __VA_ARGS__)(__VA_ARGS__)
#define _NOPAL_TP_NAMES(...) _NOPAL_TP_BY_COUNT(_NOPAL_TP_NAMES_, __VA_ARGS__)(__VA_ARGS__)
#define _NOPAL_TP_MORE_NAMES(...) _NOPAL_TP_BY_COUNT(_NOPAL_TP_MORE_NAMES_, __VA_ARGS__)(__VA_ARGS__)
#define _NOPAL_TP_OPEN(...) __VA_ARGS__

#define _NOPAL_TP_BY_COUNT(prefix, ...)					\
  _NOPAL_TP_PASTE(prefix, _NOPAL_TP_COUNT(__VA_ARGS__, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, \
					  2, 1, ~), , )
#define _NOPAL_TP_COUNT(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, count, ...) count

/* One is none: LTTNG_UST_TP_ARGS() and LTTNG_UST_TP_ARGS(void). */
#define _NOPAL_TP_PROTO_1(none) void
#define _NOPAL_TP_PROTO_2(type, name) type name __attribute__((__unused__))
#define _NOPAL_TP_PROTO_4(type, name, ...) _NOPAL_TP_PROTO_2(type, name), _NOPAL_TP_PROTO_2(__VA_ARGS__)
#define _NOPAL_TP_PROTO_6(type, name, ...) _NOPAL_TP_PROTO_2(type, name), _NOPAL_TP_PROTO_4(__VA_ARGS__)
#define _NOPAL_TP_PROTO_8(type, name, ...) _NOPAL_TP_PROTO_2(type, name), _NOPAL_TP_PROTO_6(__VA_ARGS__)
#define _NOPAL_TP_PROTO_10(type, name, ...) _NOPAL_TP_PROTO_2(type, name), _NOPAL_TP_PROTO_8(__VA_ARGS__)
#define _NOPAL_TP_PROTO_12(type, name, ...) _NOPAL_TP_PROTO_2(type, name), _NOPAL_TP_PROTO_10(__VA_ARGS__)
#define _NOPAL_TP_PROTO_14(type, name, ...) _NOPAL_TP_PROTO_2(type, name), _NOPAL_TP_PROTO_12(__VA_ARGS__)
#define _NOPAL_TP_PROTO_16(type, name, ...) _NOPAL_TP_PROTO_2(type, name), _NOPAL_TP_PROTO_14(__VA_ARGS__)
#define _NOPAL_TP_PROTO_18(type, name, ...) _NOPAL_TP_PROTO_2(type, name), _NOPAL_TP_PROTO_16(__VA_ARGS__)
#define _NOPAL_TP_PROTO_20(type, name, ...) _NOPAL_TP_PROTO_2(type, name), _NOPAL_TP_PROTO_18(__VA_ARGS__)

#define _NOPAL_TP_NAMES_1(none)
#define _NOPAL_TP_NAMES_2(type, name) name
#define _NOPAL_TP_NAMES_4(type, name, ...) name, _NOPAL_TP_NAMES_2(__VA_ARGS__)
#define _NOPAL_TP_NAMES_6(type, name, ...) name, _NOPAL_TP_NAMES_4(__VA_ARGS__)
#define _NOPAL_TP_NAMES_8(type, name, ...) name, _NOPAL_TP_NAMES_6(__VA_ARGS__)
#define _NOPAL_TP_NAMES_10(type, name, ...) name, _NOPAL_TP_NAMES_8(__VA_ARGS__)
#define _NOPAL_TP_NAMES_12(type, name, ...) name, _NOPAL_TP_NAMES_10(__VA_ARGS__)
#define _NOPAL_TP_NAMES_14(type, name, ...) name, _NOPAL_TP_NAMES_12(__VA_ARGS__)
#define _NOPAL_TP_NAMES_16(type, name, ...) name, _NOPAL_TP_NAMES_14(__VA_ARGS__)
#define _NOPAL_TP_NAMES_18(type, name, ...) name, _NOPAL_TP_NAMES_16(__VA_ARGS__)
#define _NOPAL_TP_NAMES_20(type, name, ...) name, _NOPAL_TP_NAMES_18(__VA_ARGS__)

#define _NOPAL_TP_MORE_PROTO_1(none)
#define _NOPAL_TP_MORE_PROTO_2(...) , _NOPAL_TP_PROTO_2(__VA_ARGS__)
#define _NOPAL_TP_MORE_PROTO_4(...) , _NOPAL_TP_PROTO_4(__VA_ARGS__)
#define _NOPAL_TP_MORE_PROTO_6(...) , _NOPAL_TP_PROTO_6(__VA_ARGS__)
#define _NOPAL_TP_MORE_PROTO_8(...) , _NOPAL_TP_PROTO_8(__VA_ARGS__)
#define _NOPAL_TP_MORE_PROTO_10(...) , _NOPAL_TP_PROTO_10(__VA_ARGS__)
#define _NOPAL_TP_MORE_PROTO_12(...) , _NOPAL_TP_PROTO_12(__VA_ARGS__)
#define _NOPAL_TP_MORE_PROTO_14(...) , _NOPAL_TP_PROTO_14(__VA_ARGS__)
#define _NOPAL_TP_MORE_PROTO_16(...) , _NOPAL_TP_PROTO_16(__VA_ARGS__)
#define _NOPAL_TP_MORE_PROTO_18(...) , _NOPAL_TP_PROTO_18(__VA_ARGS__)
#define _NOPAL_TP_MORE_PROTO_20(...) , _NOPAL_TP_PROTO_20(__VA_ARGS__)

#define _NOPAL_TP_MORE_NAMES_1(none)
#define _NOPAL_TP_MORE_NAMES_2(...) , _NOPAL_TP_NAMES_2(__VA_ARGS__)
#define _NOPAL_TP_MORE_NAMES_4(...) , _NOPAL_TP_NAMES_4(__VA_ARGS__)
#define _NOPAL_TP_MORE_NAMES_6(...) , _NOPAL_TP_NAMES_6(__VA_ARGS__)
#define _NOPAL_TP_MORE_NAMES_8(...) , _NOPAL_TP_NAMES_8(__VA_ARGS__)
#define _NOPAL_TP_MORE_NAMES_10(...) , _NOPAL_TP_NAMES_10(__VA_ARGS__)
#define _NOPAL_TP_MORE_NAMES_12(...) , _NOPAL_TP_NAMES_12(__VA_ARGS__)
#define _NOPAL_TP_MORE_NAMES_14(...) , _NOPAL_TP_NAMES_14(__VA_ARGS__)
#define _NOPAL_TP_MORE_NAMES_16(...) , _NOPAL_TP_NAMES_16(__VA_ARGS__)
#define _NOPAL_TP_MORE_NAMES_18(...) , _NOPAL_TP_NAMES_18(__VA_ARGS__)
#define _NOPAL_TP_MORE_NAMES_20(...) , _NOPAL_TP_NAMES_20(__VA_ARGS__)

#ifdef __cplusplus
# define _NOPAL_TP_EXTERN_C extern "C"
#else
# define _NOPAL_TP_EXTERN_C extern
#endif

#include "ust-tracepoint-event-reset.h"

#include "ust-api-compat.h"

#endif
