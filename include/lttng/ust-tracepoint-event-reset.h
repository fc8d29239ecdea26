/* What the words of a provider's header mean outside of the readings of tracepoint-event.h: a tracepoint declares its
   function, everything else says nothing. No guard: read again after each of them.

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#undef _NOPAL_TP_CLASS
#undef _NOPAL_TP_INSTANCE
#undef _NOPAL_TP_TABLE
#undef _NOPAL_TP_LEVEL
#undef _NOPAL_TP_MODEL
#undef _NOPAL_TP_LABEL
#undef _NOPAL_TP_LABEL_AUTO
#undef _NOPAL_TP_INT
#undef _NOPAL_TP_FLOAT
#undef _NOPAL_TP_STRING
#undef _NOPAL_TP_ENUM
#undef _NOPAL_TP_ARRAY
#undef _NOPAL_TP_SEQUENCE
#undef _NOPAL_TP_UNUSED

#define _NOPAL_TP_CLASS(provider, name, args, fields)
#ifndef LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ
# define _NOPAL_TP_INSTANCE(class_provider, class_name, provider, name, args) \
  _NOPAL_TP_EXTERN_C __attribute__((__visibility__("default")))		\
  void _NOPAL_TP_FUNCTION(provider, name)(_NOPAL_TP_PROTO args);
#else
# define _NOPAL_TP_INSTANCE(class_provider, class_name, provider, name, args)
#endif
#define _NOPAL_TP_TABLE(provider, name, values)
#define _NOPAL_TP_LEVEL(provider, name, level)
#define _NOPAL_TP_MODEL(provider, name, uri)
#define _NOPAL_TP_LABEL(label, first, last)
#define _NOPAL_TP_LABEL_AUTO(label)
#define _NOPAL_TP_INT(type, name, expr, items)
#define _NOPAL_TP_FLOAT(type, name, expr, items)
#define _NOPAL_TP_STRING(name, expr, items)
#define _NOPAL_TP_ENUM(provider, table, type, name, expr, items)
#define _NOPAL_TP_ARRAY(type, name, expr, count, is_text, items)
#define _NOPAL_TP_SEQUENCE(type, name, expr, length_type, length, is_text, items)
#define _NOPAL_TP_UNUSED(expr)
