/* Reads the header of a provider again and again; each time its words mean something else. No guard.

   What comes out, for a class of tracepoints and for each tracepoint:

     struct values  all fields of the class, evaluated        with CREATE_PROBES
     fixed          how much of a block they take at least    with CREATE_PROBES
     measure        puts them into slots or counts them       with CREATE_PROBES
     pack           writes the others into a block            with CREATE_PROBES
     evaluate       fills the values, measures, packs         with CREATE_PROBES
     describe       their operands and the items of the note  with DEFINE
     site           the probe; slots are its operands         with DEFINE
     tracepoint     what programs call                        with DEFINE
     probe          evaluate, as a function of its own       with CREATE_PROBES alone; tracepoint calls it

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#pragma GCC system_header

#include "ust-tracepoint-site.h"
#include "ust-tracepoint-block.h"

#define LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ 1
#if LTTNG_UST_COMPAT_API(0)
# define TRACEPOINT_HEADER_MULTI_READ 1
#endif

#undef _NOPAL_TP_FILE
#ifdef LTTNG_UST_TRACEPOINT_INCLUDE
# define _NOPAL_TP_FILE LTTNG_UST_TRACEPOINT_INCLUDE
#else
# define _NOPAL_TP_FILE TRACEPOINT_INCLUDE
#endif

#ifdef LTTNG_UST_TRACEPOINT_CREATE_PROBES

/* The values of a class. Arrays and sequences are where the program has them until they are packed. */
#include "ust-tracepoint-event-reset.h"
#undef _NOPAL_TP_CLASS
#define _NOPAL_TP_CLASS(provider, name, args, fields)			\
  struct _NOPAL_TP_PASTE(__nopal_values_, provider, ___, name) { _NOPAL_TP_OPEN fields };
#undef _NOPAL_TP_INT
#define _NOPAL_TP_INT(type, name, expr, items) type _nopal_f_##name;
#undef _NOPAL_TP_FLOAT
#define _NOPAL_TP_FLOAT(type, name, expr, items) type _nopal_f_##name;
#undef _NOPAL_TP_STRING
#define _NOPAL_TP_STRING(name, expr, items) const char *_nopal_f_##name; __SIZE_TYPE__ _nopal_n_##name;
#undef _NOPAL_TP_ENUM
#define _NOPAL_TP_ENUM(provider, table, type, name, expr, items) type _nopal_f_##name;
#undef _NOPAL_TP_ARRAY
#define _NOPAL_TP_ARRAY(type, name, expr, count, is_text, items) const void *_nopal_f_##name;
#undef _NOPAL_TP_SEQUENCE
#define _NOPAL_TP_SEQUENCE(type, name, expr, length_type, length, is_text, items) \
  const void *_nopal_f_##name; __SIZE_TYPE__ _nopal_n_##name;
#include _NOPAL_TP_FILE

/* What the block has in any event: a constant. */
#include "ust-tracepoint-event-reset.h"
#undef _NOPAL_TP_CLASS
#define _NOPAL_TP_CLASS(provider, name, args, fields)			\
  _NOPAL_TP_STEP __SIZE_TYPE__ _NOPAL_TP_PASTE(__nopal_fixed_, provider, ___, name)(void) \
  {									\
    __SIZE_TYPE__ _nopal_bytes = 0;					\
    int _nopal_n __attribute__((__unused__)) = 0;			\
    _NOPAL_TP_OPEN fields						\
    return _nopal_bytes;						\
  }
#undef _NOPAL_TP_SCALAR
#define _NOPAL_TP_SCALAR(bytes) _nopal_bytes += _nopal_n++ < _NOPAL_TP_SLOTS ? 0 : (bytes);
#undef _NOPAL_TP_INT
#define _NOPAL_TP_INT(type, name, expr, items) _NOPAL_TP_SCALAR(sizeof(type))
#undef _NOPAL_TP_FLOAT
#define _NOPAL_TP_FLOAT(type, name, expr, items) _NOPAL_TP_SCALAR(sizeof(type))
#undef _NOPAL_TP_STRING
#define _NOPAL_TP_STRING(name, expr, items) _NOPAL_TP_SCALAR(1)
#undef _NOPAL_TP_ENUM
#define _NOPAL_TP_ENUM(provider, table, type, name, expr, items) _NOPAL_TP_SCALAR(sizeof(type))
#undef _NOPAL_TP_ARRAY
#define _NOPAL_TP_ARRAY(type, name, expr, count, is_text, items) _nopal_bytes += sizeof(type) * (count);
#undef _NOPAL_TP_SEQUENCE
#define _NOPAL_TP_SEQUENCE(type, name, expr, length_type, length, is_text, items) _nopal_bytes += 4;
#include _NOPAL_TP_FILE

/* The slots, and the size of the block. Strings and sequences are cut where it would exceed what it may have at most; if
   already the arrays exceed that, the block ends there. */
#include "ust-tracepoint-event-reset.h"
#undef _NOPAL_TP_CLASS
#define _NOPAL_TP_CLASS(provider, name, args, fields)			\
  _NOPAL_TP_STEP __SIZE_TYPE__ _NOPAL_TP_PASTE(__nopal_measure_, provider, ___, name) \
    (struct _NOPAL_TP_PASTE(__nopal_values_, provider, ___, name) *_nopal_values __attribute__((__unused__)), \
     unsigned long *_nopal_slots __attribute__((__unused__)), __SIZE_TYPE__ _nopal_most) \
  {									\
    __SIZE_TYPE__ _nopal_bytes = _NOPAL_TP_PASTE(__nopal_fixed_, provider, ___, name)(); \
    __SIZE_TYPE__ _nopal_room __attribute__((__unused__)) = _nopal_bytes < _nopal_most ? _nopal_most - _nopal_bytes : 0; \
    int _nopal_n __attribute__((__unused__)) = 0;			\
    _NOPAL_TP_OPEN fields						\
    return _nopal_bytes < _nopal_most ? _nopal_bytes : _nopal_most;	\
  }
#undef _NOPAL_TP_SCALAR
#define _NOPAL_TP_SCALAR(name)						\
  if (_nopal_n < _NOPAL_TP_SLOTS)					\
    __builtin_memcpy(&_nopal_slots[_nopal_n++], &_nopal_values->_nopal_f_##name, sizeof _nopal_values->_nopal_f_##name);
#undef _NOPAL_TP_INT
#define _NOPAL_TP_INT(type, name, expr, items) _NOPAL_TP_SCALAR(name)
#undef _NOPAL_TP_FLOAT
#define _NOPAL_TP_FLOAT(type, name, expr, items) _NOPAL_TP_SCALAR(name)
#undef _NOPAL_TP_ENUM
#define _NOPAL_TP_ENUM(provider, table, type, name, expr, items) _NOPAL_TP_SCALAR(name)
#undef _NOPAL_TP_STRING
#define _NOPAL_TP_STRING(name, expr, items)				\
  if (_nopal_n < _NOPAL_TP_SLOTS)					\
    _nopal_slots[_nopal_n++] = (unsigned long) _nopal_values->_nopal_f_##name; \
  else									\
    _nopal_bytes += __nopal_tp_string_bytes(_nopal_values->_nopal_f_##name, &_nopal_values->_nopal_n_##name, &_nopal_room);
#undef _NOPAL_TP_SEQUENCE
#define _NOPAL_TP_SEQUENCE(type, name, expr, length_type, length, is_text, items) \
  _nopal_bytes += __nopal_tp_sequence_bytes(&_nopal_values->_nopal_n_##name, sizeof(type), &_nopal_room);
#include _NOPAL_TP_FILE

/* The block. */
#include "ust-tracepoint-event-reset.h"
#undef _NOPAL_TP_CLASS
#define _NOPAL_TP_CLASS(provider, name, args, fields)			\
  _NOPAL_TP_STEP void _NOPAL_TP_PASTE(__nopal_pack_, provider, ___, name) \
    (const struct _NOPAL_TP_PASTE(__nopal_values_, provider, ___, name) *_nopal_values __attribute__((__unused__)), \
     char *_nopal_to __attribute__((__unused__)), const char *_nopal_end __attribute__((__unused__))) \
  {									\
    int _nopal_n __attribute__((__unused__)) = 0;			\
    _NOPAL_TP_OPEN fields						\
  }
#undef _NOPAL_TP_SCALAR
#define _NOPAL_TP_SCALAR(name)						\
  if (_nopal_n++ >= _NOPAL_TP_SLOTS)					\
    _nopal_to = __nopal_tp_append(_nopal_to, _nopal_end, &_nopal_values->_nopal_f_##name, \
				  sizeof _nopal_values->_nopal_f_##name);
#undef _NOPAL_TP_INT
#define _NOPAL_TP_INT(type, name, expr, items) _NOPAL_TP_SCALAR(name)
#undef _NOPAL_TP_FLOAT
#define _NOPAL_TP_FLOAT(type, name, expr, items) _NOPAL_TP_SCALAR(name)
#undef _NOPAL_TP_ENUM
#define _NOPAL_TP_ENUM(provider, table, type, name, expr, items) _NOPAL_TP_SCALAR(name)
#undef _NOPAL_TP_STRING
#define _NOPAL_TP_STRING(name, expr, items)				\
  if (_nopal_n++ >= _NOPAL_TP_SLOTS) {					\
    _nopal_to = __nopal_tp_append(_nopal_to, _nopal_end, _nopal_values->_nopal_f_##name, _nopal_values->_nopal_n_##name); \
    _nopal_to = __nopal_tp_append(_nopal_to, _nopal_end, "", 1);	\
  }
#undef _NOPAL_TP_ARRAY
#define _NOPAL_TP_ARRAY(type, name, expr, count, is_text, items)	\
  _nopal_to = __nopal_tp_append(_nopal_to, _nopal_end, _nopal_values->_nopal_f_##name, sizeof(type) * (count));
#undef _NOPAL_TP_SEQUENCE
#define _NOPAL_TP_SEQUENCE(type, name, expr, length_type, length, is_text, items) \
  _nopal_to = __nopal_tp_append_sequence(_nopal_to, _nopal_end, _nopal_values->_nopal_f_##name, \
					 _nopal_values->_nopal_n_##name, sizeof(type));
#include _NOPAL_TP_FILE

/* Each expression is evaluated once, in the order of the fields; then all of it goes to the site. One function, since a field
   may be the address of an argument. */
#include "ust-tracepoint-event-reset.h"
#undef _NOPAL_TP_CLASS
#define _NOPAL_TP_CLASS(provider, name, args, fields)			\
  _NOPAL_TP_INLINE void _NOPAL_TP_PASTE(__nopal_evaluate_, provider, ___, name) \
    (__nopal_tp_site _nopal_site _NOPAL_TP_MORE_PROTO args)		\
  {									\
    struct _NOPAL_TP_PASTE(__nopal_values_, provider, ___, name) _nopal_all_values; \
    struct _NOPAL_TP_PASTE(__nopal_values_, provider, ___, name) *_nopal_values = &_nopal_all_values; \
    unsigned long _nopal_slots[_NOPAL_TP_SLOTS + 2];			\
    __SIZE_TYPE__ _nopal_bytes;						\
    char *_nopal_block = 0;						\
    int *_nopal_taken = 0;						\
    /* Slots that no operand names are never read; the compiler need not fear that they are. */ \
    __asm__ ("" : "=m" (_nopal_slots));					\
    _NOPAL_TP_OPEN fields						\
    _nopal_bytes = _NOPAL_TP_PASTE(__nopal_measure_, provider, ___, name)(_nopal_values, _nopal_slots, _NOPAL_TP_LONG); \
    if (_nopal_bytes > _NOPAL_TP_SHORT) {				\
      _nopal_taken = __nopal_tp_take(&_nopal_block);			\
      if (!_nopal_taken)						\
	_nopal_bytes = _NOPAL_TP_PASTE(__nopal_measure_, provider, ___, name)(_nopal_values, _nopal_slots, _NOPAL_TP_SHORT); \
    }									\
    if (_nopal_bytes > 0) {						\
      if (!_nopal_taken)						\
	_nopal_block = (char *) __builtin_alloca(_nopal_bytes);		\
      _NOPAL_TP_PASTE(__nopal_pack_, provider, ___, name)		\
	(_nopal_values, _nopal_block,					\
	 _NOPAL_TP_PASTE(__nopal_fixed_, provider, ___, name)() > _NOPAL_TP_SHORT ? _nopal_block + _nopal_bytes : 0); \
    }									\
    _nopal_slots[_NOPAL_TP_SLOTS] = (unsigned long) _nopal_block;	\
    _nopal_slots[_NOPAL_TP_SLOTS + 1] = _nopal_bytes;			\
    _nopal_site(_nopal_slots);						\
    if (_nopal_taken)							\
      __nopal_tp_give(_nopal_taken);					\
  }
#undef _NOPAL_TP_INT
#define _NOPAL_TP_INT(type, name, expr, items) _nopal_values->_nopal_f_##name = (type) (expr);
#undef _NOPAL_TP_FLOAT
#define _NOPAL_TP_FLOAT(type, name, expr, items) _nopal_values->_nopal_f_##name = (type) (expr);
#undef _NOPAL_TP_STRING
#define _NOPAL_TP_STRING(name, expr, items)				\
  _nopal_values->_nopal_f_##name = (const char *) (expr);		\
  if (!_nopal_values->_nopal_f_##name)					\
    _nopal_values->_nopal_f_##name = "(null)";
#undef _NOPAL_TP_ENUM
#define _NOPAL_TP_ENUM(provider, table, type, name, expr, items) _nopal_values->_nopal_f_##name = (type) (expr);
#undef _NOPAL_TP_ARRAY
#define _NOPAL_TP_ARRAY(type, name, expr, count, is_text, items)	\
  _nopal_values->_nopal_f_##name = (const void *) (expr);
#undef _NOPAL_TP_SEQUENCE
#define _NOPAL_TP_SEQUENCE(type, name, expr, length_type, length, is_text, items) \
  _nopal_values->_nopal_f_##name = (const void *) (expr);		\
  _nopal_values->_nopal_n_##name = __nopal_tp_length((long) (length_type) (length));
#include _NOPAL_TP_FILE

#endif

#ifdef LTTNG_UST_TRACEPOINT_DEFINE

/* Tables of labels, as items for the note of each field that has one. */
#include "ust-tracepoint-event-reset.h"
#undef _NOPAL_TP_TABLE
#define _NOPAL_TP_TABLE(provider, name, values)				\
  _NOPAL_TP_INLINE void _NOPAL_TP_PASTE(__nopal_table_, provider, ___, name)(void) \
  {									\
    _NOPAL_TP_ASM (_NOPAL_TP_TABLE_BEGIN);				\
    _NOPAL_TP_OPEN values						\
    _NOPAL_TP_ASM (_NOPAL_TP_TABLE_END);				\
  }
/* The label stands in an asm statement without operands: there % and { are but characters. */
#undef _NOPAL_TP_LABEL
#define _NOPAL_TP_LABEL(label, first, last)				\
  _NOPAL_TP_ASM (_NOPAL_TP_LABEL_BEGIN :				\
		 : [_nopal_first] "n" ((int) (first)), [_nopal_first_high] "n" ((int) ((long) (first) >> 32)), \
		   [_nopal_last] "n" ((int) (last)), [_nopal_last_high] "n" ((int) ((long) (last) >> 32))); \
  _NOPAL_TP_ASM (_NOPAL_TP_LABEL_END(label));
#undef _NOPAL_TP_LABEL_AUTO
#define _NOPAL_TP_LABEL_AUTO(label)					\
  _NOPAL_TP_ASM (_NOPAL_TP_LABEL_NEXT);					\
  _NOPAL_TP_ASM (_NOPAL_TP_LABEL_END(label));
#include _NOPAL_TP_FILE

/* What the fields of a class are, as pieces of the two notes of a tracepoint. */
#include "ust-tracepoint-event-reset.h"
#undef _NOPAL_TP_CLASS
#define _NOPAL_TP_CLASS(provider, name, args, fields)			\
  _NOPAL_TP_INLINE void _NOPAL_TP_PASTE(__nopal_describe_, provider, ___, name)(void) \
  {									\
    _NOPAL_TP_OPEN fields						\
  }
#undef _NOPAL_TP_INT
#define _NOPAL_TP_INT(type, name, expr, items)				\
  _NOPAL_TP_ASM (_NOPAL_TP_OPERAND("2-%c[_nopal_sign]", #name, #type, _NOPAL_TP_SIZE, items) : \
		 : [_nopal_size] "n" (sizeof(type)), [_nopal_sign] "n" (_NOPAL_TP_IS_SIGNED(type)));
#undef _NOPAL_TP_FLOAT
#define _NOPAL_TP_FLOAT(type, name, expr, items)			\
  _NOPAL_TP_ASM (_NOPAL_TP_OPERAND("8", #name, #type, _NOPAL_TP_SIZE, items) : \
		 : [_nopal_size] "n" (sizeof(type)), [_nopal_sign] "n" (0));
#undef _NOPAL_TP_STRING
#define _NOPAL_TP_STRING(name, expr, items)				\
  _NOPAL_TP_ASM (_NOPAL_TP_OPERAND("5", #name, "const char *", "", _NOPAL_TP_TRUSTED items) : \
		 : [_nopal_size] "n" (sizeof(char *)), [_nopal_sign] "n" (0));
#undef _NOPAL_TP_ENUM
#define _NOPAL_TP_ENUM(provider, table, type, name, expr, items)	\
  _NOPAL_TP_ASM (_NOPAL_TP_OPERAND("9", #name, #type, _NOPAL_TP_SIZE _NOPAL_TP_SIGN, items) : \
		 : [_nopal_size] "n" (sizeof(type)), [_nopal_sign] "n" (_NOPAL_TP_IS_SIGNED(type))); \
  _NOPAL_TP_PASTE(__nopal_table_, provider, ___, table)();
#undef _NOPAL_TP_ARRAY
#define _NOPAL_TP_ARRAY(type, name, expr, count, is_text, items)	\
  _NOPAL_TP_ASM (_NOPAL_TP_ELEMENTS("10", #name, #type, items) :	\
		 : [_nopal_size] "n" (sizeof(type)), [_nopal_count] "n" (count),	\
		   [_nopal_kind] "n" (is_text ? 12 : 2 - _NOPAL_TP_IS_SIGNED(type)));
#undef _NOPAL_TP_SEQUENCE
#define _NOPAL_TP_SEQUENCE(type, name, expr, length_type, length, is_text, items) \
  _NOPAL_TP_ASM (_NOPAL_TP_ELEMENTS("11", #name, #type, items) :	\
		 : [_nopal_size] "n" (sizeof(type)), [_nopal_count] "n" (0),		\
		   [_nopal_kind] "n" (is_text ? 12 : 2 - _NOPAL_TP_IS_SIGNED(type)));
#include _NOPAL_TP_FILE

#endif

/* The tracepoints. */
#include "ust-tracepoint-event-reset.h"
#undef _NOPAL_TP_TRACEPOINT
#undef _NOPAL_TP_INSTANCE
#undef _NOPAL_TP_LEVEL
#undef _NOPAL_TP_MODEL

#ifdef LTTNG_UST_TRACEPOINT_DEFINE
# define _NOPAL_TP_LEVEL(provider, name, level)				\
  __attribute__((__used__)) static void _NOPAL_TP_PASTE(__nopal_level_, provider, ___, name)(void) \
  {									\
    _NOPAL_TP_ASM (_NOPAL_TP_NOTE_BEGIN(_NOPAL_SDT_TEXT(provider), _NOPAL_SDT_TEXT(name)) \
		   _NOPAL_TP_IN_NOTE("\t.2byte 0x05, 4\n\t.4byte %c[_nopal_level]\n") _NOPAL_TP_NOTE_END : \
		   : [_nopal_level] "n" ((int) (level)));			\
  }
# define _NOPAL_TP_MODEL(provider, name, uri)				\
  __attribute__((__used__)) static void _NOPAL_TP_PASTE(__nopal_model_, provider, ___, name)(void) \
  {									\
    _NOPAL_TP_ASM (_NOPAL_TP_NOTE_BEGIN(_NOPAL_SDT_TEXT(provider), _NOPAL_SDT_TEXT(name)) \
		   _NOPAL_TP_IN_NOTE("\t.2byte 0x06, 982f-981f\n981:\t.ascii " _NOPAL_SDT_TEXT(uri) "\n982:\n") \
		   _NOPAL_TP_NOTE_END);					\
  }
/* The function of the site is one of its own, so that each tracepoint has one site; its first parameter is in a register
   that the operands can name. The asm statements make the eleven bytes of the site and no other code. */
# define _NOPAL_TP_SITE(class_provider, class_name, provider, name)	\
  _NOPAL_TP_OUTLINE static void						\
  _NOPAL_TP_PASTE(__nopal_site_, provider, ___, name)(const unsigned long *_nopal_slots) \
  {									\
    _NOPAL_TP_PIN(_nopal_pinned, _nopal_slots)				\
    _NOPAL_TP_ASM (_NOPAL_TP_SITE_BEGIN(_NOPAL_SDT_TEXT(provider), _NOPAL_SDT_TEXT(name), \
					_NOPAL_TP_SEMAPHORE(provider, name)) \
		   _NOPAL_TP_NOTE_BEGIN(_NOPAL_SDT_TEXT(provider), _NOPAL_SDT_TEXT(name)) : \
		   : _NOPAL_TP_PINNED(_nopal_pinned) : "memory"); \
    _NOPAL_TP_PASTE(__nopal_describe_, class_provider, ___, class_name)(); \
    _NOPAL_TP_ASM (_NOPAL_TP_SITE_END _NOPAL_TP_NOTE_END);		\
  }
#else
# define _NOPAL_TP_LEVEL(provider, name, level)
# define _NOPAL_TP_MODEL(provider, name, uri)
#endif

#if defined LTTNG_UST_TRACEPOINT_DEFINE && defined LTTNG_UST_TRACEPOINT_CREATE_PROBES
# define _NOPAL_TP_INSTANCE(class_provider, class_name, provider, name, args) \
  _NOPAL_TP_SITE(class_provider, class_name, provider, name)		\
  /* Also for programs that define the tracepoint and are linked with this library. */ \
  _NOPAL_TP_EXTERN_C __attribute__((__visibility__("protected")))	\
  void _NOPAL_TP_PASTE(__nopal_probe_, provider, ___, name)		\
    (__nopal_tp_site _nopal_site _NOPAL_TP_MORE_PROTO args);		\
  _NOPAL_TP_OUTLINE void _NOPAL_TP_PASTE(__nopal_probe_, provider, ___, name) \
    (__nopal_tp_site _nopal_site _NOPAL_TP_MORE_PROTO args)		\
  {									\
    _NOPAL_TP_PASTE(__nopal_evaluate_, class_provider, ___, class_name)(_nopal_site _NOPAL_TP_MORE_NAMES args); \
  }									\
  _NOPAL_TP_OUTLINE void _NOPAL_TP_FUNCTION(provider, name)(_NOPAL_TP_PROTO args) \
  {									\
    _NOPAL_TP_PASTE(__nopal_probe_, provider, ___, name)		\
      (_NOPAL_TP_PASTE(__nopal_site_, provider, ___, name) _NOPAL_TP_MORE_NAMES args); \
  }
#elif defined LTTNG_UST_TRACEPOINT_DEFINE && defined LTTNG_UST_TRACEPOINT_PROBE_DYNAMIC_LINKAGE
# define _NOPAL_TP_INSTANCE(class_provider, class_name, provider, name, args) \
  _NOPAL_TP_SITE(class_provider, class_name, provider, name)		\
  _NOPAL_TP_EXTERN_C __attribute__((__visibility__("hidden")))		\
  struct __nopal_tp_link _NOPAL_TP_PASTE(__nopal_link_, provider, ___, name); \
  _NOPAL_TP_OUTLINE void _NOPAL_TP_FUNCTION(provider, name)(_NOPAL_TP_PROTO args) \
  {									\
    /* Here in front: the compiler must not make two of it. */		\
    _NOPAL_TP_ASM (_NOPAL_TP_LINK(_NOPAL_SDT_TEXT(provider), _NOPAL_SDT_TEXT(name), \
				  _NOPAL_SDT_TEXT(_NOPAL_TP_PASTE(__nopal_link_, provider, ___, name))) : \
		   : [_nopal_size] "n" (sizeof(struct __nopal_tp_link))); \
    struct __nopal_tp_link *_nopal_link = &_NOPAL_TP_PASTE(__nopal_link_, provider, ___, name); \
    int _nopal_i, *_nopal_passing = __nopal_tp_enter(_nopal_link);	\
    if (!_nopal_passing)						\
      return;								\
    for (_nopal_i = 0; _nopal_i < _NOPAL_TP_PROBES; _nopal_i++) {	\
      /* Only now is it sure to stay. */				\
      __nopal_tp_probe _nopal_probe = __atomic_load_n(&_nopal_link->probes[_nopal_i], __ATOMIC_SEQ_CST); \
      if (_nopal_probe)							\
	((void (*)(__nopal_tp_site _NOPAL_TP_MORE_PROTO args)) _nopal_probe) \
	  (_NOPAL_TP_PASTE(__nopal_site_, provider, ___, name) _NOPAL_TP_MORE_NAMES args); \
    }									\
    __nopal_tp_leave(_nopal_passing);					\
  }
#elif defined LTTNG_UST_TRACEPOINT_DEFINE
# define _NOPAL_TP_INSTANCE(class_provider, class_name, provider, name, args) \
  _NOPAL_TP_SITE(class_provider, class_name, provider, name)		\
  _NOPAL_TP_EXTERN_C void _NOPAL_TP_PASTE(__nopal_probe_, provider, ___, name) \
    (__nopal_tp_site _NOPAL_TP_MORE_PROTO args);		\
  _NOPAL_TP_OUTLINE void _NOPAL_TP_FUNCTION(provider, name)(_NOPAL_TP_PROTO args) \
  {									\
    _NOPAL_TP_PASTE(__nopal_probe_, provider, ___, name)		\
      (_NOPAL_TP_PASTE(__nopal_site_, provider, ___, name) _NOPAL_TP_MORE_NAMES args); \
  }
#else
# define _NOPAL_TP_INSTANCE(class_provider, class_name, provider, name, args) \
  _NOPAL_TP_EXTERN_C __attribute__((__visibility__("default")))		\
  void _NOPAL_TP_PASTE(__nopal_probe_, provider, ___, name)		\
    (__nopal_tp_site _nopal_site _NOPAL_TP_MORE_PROTO args);	\
  void _NOPAL_TP_PASTE(__nopal_probe_, provider, ___, name)		\
    (__nopal_tp_site _nopal_site _NOPAL_TP_MORE_PROTO args)	\
  {									\
    _NOPAL_TP_PASTE(__nopal_evaluate_, class_provider, ___, class_name)(_nopal_site _NOPAL_TP_MORE_NAMES args); \
  }									\
  static struct __nopal_tp_provided _NOPAL_TP_PASTE(__nopal_provided_, provider, ___, name) = { \
    _NOPAL_SDT_TEXT(provider) ":" _NOPAL_SDT_TEXT(name),		\
    (__nopal_tp_probe) _NOPAL_TP_PASTE(__nopal_probe_, provider, ___, name), 0 \
  };									\
  __attribute__((__constructor__)) static void _NOPAL_TP_PASTE(__nopal_register_, provider, ___, name)(void) \
  {									\
    __nopal_lttng_provide(&_NOPAL_TP_PASTE(__nopal_provided_, provider, ___, name)); \
  }									\
  __attribute__((__destructor__)) static void _NOPAL_TP_PASTE(__nopal_unregister_, provider, ___, name)(void) \
  {									\
    __nopal_lttng_withdraw(&_NOPAL_TP_PASTE(__nopal_provided_, provider, ___, name)); \
  }
#endif
#include _NOPAL_TP_FILE

#if defined LTTNG_UST_TRACEPOINT_CREATE_PROBES && !defined _NOPAL_TP_STARTS
# define _NOPAL_TP_STARTS
/* Before the first event: recorders may wait for programs that start. Before what the program itself does at its start. */
_NOPAL_TP_EXTERN_C void __nopal_lttng_start(void);
__attribute__((__constructor__(101), __unused__)) static void __nopal_tp_start(void) { __nopal_lttng_start(); }
#endif

#undef LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ
#undef TRACEPOINT_HEADER_MULTI_READ
#undef _NOPAL_TP_FILE
#undef _NOPAL_TP_SITE
#include "ust-tracepoint-event-reset.h"
