/* For wrappers written by hand beside the generated ones in trace.h:
 *
 *     #define TRACE_MY_PROBE(arg0) REDIS_USDT_PROBE_HOOK(MY_PROBE, arg0)
 *
 * The arguments are looked at only if somebody listens; without USE_USDT nothing is left of the call. */
#ifndef REDIS_USDT_HOOK_H
#define REDIS_USDT_HOOK_H

#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#ifdef USE_USDT
#define REDIS_USDT_PROBE_HOOK(name, ...) \
    do { if (UNLIKELY(REDIS_##name##_ENABLED())) { REDIS_##name(__VA_ARGS__); } } while (0)
#else
#define REDIS_USDT_PROBE_HOOK(name, ...) do { } while (0)
#endif

#endif
