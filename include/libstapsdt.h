/* <libstapsdt.h>: probes that are declared while the program runs, for programs written for libstapsdt. Link with
   -lstapsdt. New programs better use <nopal.h>, whose probes have names and types for their arguments, floats, texts and
   bytes, and up to twelve of them.

   A probe is fired at the price of two comparisons while no tracer listens. Probes may be added at any time: the next
   providerLoad makes them visible and leaves those that are loaded where they are. All functions may be called from any
   thread, except that a provider is changed by one thread at a time; probes may be fired and asked all the while, until
   the provider is destroyed. A forked child has its parent's probes.

   SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef _LIBSTAPSDT_H
#define _LIBSTAPSDT_H 1

#ifdef __cplusplus
extern "C" {
#endif

#define MAX_ARGUMENTS 6

/* The type of an argument: its size in bytes, negative if it is signed. */
typedef enum {
  noarg = 0,
  uint8 = 1,
  int8 = -1,
  uint16 = 2,
  int16 = -2,
  uint32 = 4,
  int32 = -4,
  uint64 = 8,
  int64 = -8
} ArgType_t;

typedef enum {
  noError = -1,
  elfCreationError = 0,		/* a name, a type or a number of arguments that cannot be */
  tmpCreationError = 1,		/* the kernel refused */
  sharedLibraryOpenError = 2,	/* the dynamic linker refused */
  symbolLoadingError = 3,	/* never */
  sharedLibraryCloseError = 4	/* never */
} SDTError_t;

typedef enum {
  memfd_disabled = 0,
  memfd_enabled = 1
} MemFDOption_t;

struct SDTProvider;

typedef struct SDTProbe {
  char *name;
  ArgType_t argFmt[MAX_ARGUMENTS];
  void *_fire;			/* the site; NULL while the probe is not loaded */
  struct SDTProvider *provider;
  int argCount;
} SDTProbe_t;

typedef struct SDTProbeList_ {
  SDTProbe_t probe;
  struct SDTProbeList_ *next;
} SDTProbeList_t;

typedef struct SDTProvider {
  char *name;
  SDTProbeList_t *probes;	/* the newest first */
  SDTError_t errno;		/* the last error */
  char *error;			/* and what it is; NULL as long as there was none */
  void *_handle;		/* NULL while the provider is not loaded */
  char *_filename;		/* /proc/PID/fd/N while the provider is loaded */
  int _memfd;
  MemFDOption_t _use_memfd;
} SDTProvider_t;

/* NULL if the name cannot be one. */
SDTProvider_t *providerInit(const char *name);

/* Before the provider is loaded: 1, and the field says so. The object is in memory in either case, never in a folder. */
int providerUseMemfd(SDTProvider_t *provider, const MemFDOption_t use_memfd);

/* A probe with `argCount` arguments, whose types follow. NULL on error, of which the provider then tells. */
SDTProbe_t *providerAddProbe(SDTProvider_t *provider, const char *name, int argCount, ...);

/* 0, or -1 on error, of which the provider then tells. */
int providerLoad(SDTProvider_t *provider);

/* 0. What was loaded can be loaded again, and is then where it was. */
int providerUnload(SDTProvider_t *provider);

/* Unloads and frees the provider and its probes, which no thread may use any more. */
void providerDestroy(SDTProvider_t *provider);

/* The values follow, all of them integers or pointers. Nothing happens while the probe is not loaded. */
void probeFire(SDTProbe_t *probe, ...);

/* 1 while a tracer listens: the semaphore is raised, or the first byte of the site is no longer the nop. */
int probeIsEnabled(SDTProbe_t *probe);

#ifdef __cplusplus
}
#endif

#endif
