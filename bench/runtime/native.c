/* What probes that are declared at run time cost a C program. Prints one line of JSON.

   native           while nobody listens, and to declare them
   native enabled   while somebody does: says `ready PID`, waits for a tracer of bench:event, measures

   With STAPSDT defined through libstapsdt's functions, which two libraries have. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef STAPSDT
# include <libstapsdt.h>
typedef SDTProvider_t provider;
typedef SDTProbe_t probe;
# define NEW(name) providerInit(name)
# define ADD(of, name) providerAddProbe(of, name, 2, uint64, uint64)
# define LOAD(of) providerLoad(of)
# define UNLOAD(of) providerUnload(of)
# define DESTROY(of) providerDestroy(of)
# define IS_ENABLED(p) probeIsEnabled(p)
# define FIRE(p, a, b) probeFire(p, (uint64_t) (a), (uint64_t) (b))
#else
# include <nopal.h>
typedef nopal_provider provider;
typedef nopal_probe probe;
static const nopal_arg ints[] = {{"a", NOPAL_UINT64, 0}, {"b", NOPAL_UINT64, 0}};
# define NEW(name) nopal_provider_new(name)
# define ADD(of, name) nopal_provider_add(of, name, ints, 2)
# define LOAD(of) nopal_provider_load(of)
# define UNLOAD(of) nopal_provider_unload(of)
# define DESTROY(of) nopal_provider_destroy(of)
# define IS_ENABLED(p) nopal_probe_enabled(p)
# define FIRE(p, a, b)							\
  do {									\
    nopal_value values[2] = {{(a), 0}, {(b), 0}};			\
    nopal_probe_fire(p, values, 2);					\
  } while (0)
#endif

static uint64_t now(void)
{
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
  double x = *(const double *) a, y = *(const double *) b;
  return (x > y) - (x < y);
}

/* Bursts, each of them timed; nothing is subtracted. */
static void measure(probe *probe, int what, int n_hits, int n_bursts, int pause_us, double *low, double *median)
{
  double *took = malloc(n_bursts * sizeof *took);
  unsigned n_enabled = 0;
  for (int burst = 0; burst < n_bursts; burst++) {
    uint64_t start = now();
    if (what == 'e')
      for (int i = 0; i < n_hits; i++)
	n_enabled += IS_ENABLED(probe);
    else
      for (int i = 0; i < n_hits; i++)
	FIRE(probe, i, 2);
    took[burst] = (now() - start) / (double) n_hits;
    if (pause_us)
      usleep(pause_us);
  }
  qsort(took, n_bursts, sizeof *took, by_size);
  *low = took[0];
  *median = took[n_bursts / 2];
  free(took);
  if (n_enabled)
    exit(2);
}

static double registration_us(int count)
{
  double best = 1e12;
  for (int round = 0; round < 7; round++) {
    char name[64];
    uint64_t start;
    double took;
    provider *of;
    snprintf(name, sizeof name, "registered_%d_%d", count, round);
    of = NEW(name);
    start = now();
    for (int i = 0; i < count; i++) {
      snprintf(name, sizeof name, "probe%d", i);
      if (!ADD(of, name))
	exit(3);
    }
    if (LOAD(of))
      exit(4);
    took = (now() - start) / 1000.0;
    best = took < best ? took : best;
    UNLOAD(of);
    DESTROY(of);
  }
  return best;
}

int main(int argc, char **argv)
{
  static const int counts[] = {1, 10, 100, 1000};
  provider *of = NEW("bench");
  probe *event = ADD(of, "event");
  double low, median;
  if (!event || LOAD(of))
    return 1;
  printf("%s", argc > 1 ? "" : "{\"language\": \"c\"");
  if (argc > 1 && !strcmp(argv[1], "enabled")) {
    int n_hits = argc > 2 ? atoi(argv[2]) : 500;
    printf("ready %d\n", (int) getpid());
    fflush(stdout);
    for (int i = 0; !IS_ENABLED(event); i++) {
      if (i > 3000)
	return 5;
      usleep(10000);
    }
    usleep(300000);
    measure(event, 'f', n_hits, 500, 1000, &low, &median);
    printf("{\"language\": \"c\", \"enabled_fire_ns\": %.1f, \"enabled_fire_median_ns\": %.1f}\n", low, median);
    return 0;
  }
  measure(event, 'e', 10000, 1000, 0, &low, &median);
  printf(", \"is_enabled_ns\": %.2f, \"is_enabled_median_ns\": %.2f", low, median);
  measure(event, 'f', 10000, 1000, 0, &low, &median);
  printf(", \"fire_ns\": %.2f, \"fire_median_ns\": %.2f, \"registration_us\": {", low, median);
  for (int i = 0; i < 4; i++)
    printf("%s\"%d\": %.1f", i ? ", " : "", counts[i], registration_us(counts[i]));
  puts("}}");
  return 0;
}
