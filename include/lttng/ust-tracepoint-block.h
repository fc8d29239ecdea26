/* The block of packed fields: its layout, and where it lies. Read by ust-tracepoint-event.h.

   A short block is on the stack. Stacks may be small, those of signal handlers in particular, so a longer one takes one of
   a few places that each program or library has for all of its tracepoints; if all are taken, fields are cut until the
   block is a short one. Nothing is locked and nothing allocated. A place that is never given back (its thread was left
   behind by fork(), or by longjmp() in a signal handler) is lost, no more.

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef _NOPAL_TRACEPOINT_BLOCK_H
#define _NOPAL_TRACEPOINT_BLOCK_H 1

#pragma GCC system_header

/* In bytes: the longest block, and the longest on the stack. */
#define _NOPAL_TP_LONG 16384
#define _NOPAL_TP_SHORT 512

#define _NOPAL_TP_PLACES 32
struct __nopal_tp_places {
  struct {
    int is_taken __attribute__((__aligned__(64)));
  } of[_NOPAL_TP_PLACES];
  char bytes[_NOPAL_TP_PLACES][_NOPAL_TP_LONG];
};

/* A common symbol: there is one for all objects of a program or library, and none where no block can be long. */
#define _NOPAL_TP_COMMON "\t.comm __nopal_tp_places, %c[_nopal_size], 64\n\t.hidden __nopal_tp_places\n"
#if defined __x86_64__
# define _NOPAL_TP_ADDRESS "\tlea{q __nopal_tp_places(%%rip), %0| %0, __nopal_tp_places[rip]}\n"
#else
# define _NOPAL_TP_ADDRESS "\tadrp %0, __nopal_tp_places\n\tadd %0, %0, :lo12:__nopal_tp_places\n"
#endif

/* A place for a long block, and what is to be set to 0 to give it back; null if there is none. */
__attribute__((__noinline__, __unused__)) static int *__nopal_tp_take(char **block)
{
  struct __nopal_tp_places *places;
  unsigned long own = _NOPAL_TP_OWN(_NOPAL_TP_PLACES), i;
  __asm__ (_NOPAL_TP_COMMON _NOPAL_TP_ADDRESS : "=r" (places) : [_nopal_size] "n" (sizeof *places));
  for (i = 0; i < _NOPAL_TP_PLACES; i++) {
    unsigned long at = (own + i) % _NOPAL_TP_PLACES;
    int *is_taken = &places->of[at].is_taken;
    if (!__atomic_load_n(is_taken, __ATOMIC_RELAXED) && !__atomic_exchange_n(is_taken, 1, __ATOMIC_ACQUIRE)) {
      *block = places->bytes[at];
      return is_taken;
    }
  }
  return 0;
}

_NOPAL_TP_STEP void __nopal_tp_give(int *is_taken)
{
  __atomic_store_n(is_taken, 0, __ATOMIC_RELEASE);
}

/* The count of a sequence as it stands in the block: bit 31 says that there were more. */
#define _NOPAL_TP_HAD_MORE 0x80000000ul

_NOPAL_TP_STEP __SIZE_TYPE__ __nopal_tp_length(long length)
{
  return length < 0 ? 0 : length < (long) _NOPAL_TP_HAD_MORE ? (__SIZE_TYPE__) length : _NOPAL_TP_HAD_MORE - 1;
}

/* Without its NUL. */
_NOPAL_TP_STEP __SIZE_TYPE__ __nopal_tp_string_bytes(const char *text, __SIZE_TYPE__ *length, __SIZE_TYPE__ *room)
{
  *length = __builtin_strlen(text);
  if (*length > *room)
    *length = *room;
  *room -= *length;
  return *length;
}

/* Without its count. */
_NOPAL_TP_STEP __SIZE_TYPE__ __nopal_tp_sequence_bytes(__SIZE_TYPE__ *count, __SIZE_TYPE__ size, __SIZE_TYPE__ *room)
{
  __SIZE_TYPE__ fit = *room / size, n = *count & ~_NOPAL_TP_HAD_MORE;
  if (n > fit) {
    n = fit;
    *count = n | _NOPAL_TP_HAD_MORE;
  }
  *room -= n * size;
  return n * size;
}

/* Up to the end, if there is one. */
_NOPAL_TP_STEP char *__nopal_tp_append(char *to, const char *end, const void *from, __SIZE_TYPE__ bytes)
{
  if (end && bytes > (__SIZE_TYPE__) (end - to))
    bytes = (__SIZE_TYPE__) (end - to);
  __builtin_memcpy(to, from, bytes);
  return to + bytes;
}

_NOPAL_TP_STEP char *__nopal_tp_append_sequence(char *to, const char *end, const void *from, __SIZE_TYPE__ count,
						  __SIZE_TYPE__ size)
{
  __UINT32_TYPE__ word = (__UINT32_TYPE__) count;
  to = __nopal_tp_append(to, end, &word, 4);
  count &= ~_NOPAL_TP_HAD_MORE;
  return count ? __nopal_tp_append(to, end, from, count * size) : to;
}

#endif
