/* Threads that hit one probe, each in short bursts with pauses in which a tracer can drain its rings.

     threads N BURSTS HITS     waits for a line, hits, prints "HITS MIN MEDIAN" (CPU ns of a hit: of each thread the best
                               burst, of these the least and the middle one), and waits for another line */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <sys/sdt.h>

static long n_bursts, n_hits;

static double cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void *work(void *best)
{
	*(double *)best = 1e18;
	for (long b = 0; b < n_bursts; b++) {
		double start = cpu_ns();
		for (long i = 0; i < n_hits; i++) {
			DTRACE_PROBE2(grow, hit, i, b);
			__asm__ volatile("" : "+r"(i));
		}
		double took = (cpu_ns() - start) / n_hits;
		if (took < *(double *)best)
			*(double *)best = took;
		usleep(2000);
	}
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	char line[16];
	if (argc != 4)
		return 2;
	long n = atol(argv[1]);
	n_bursts = atol(argv[2]), n_hits = atol(argv[3]);
	double *best = calloc(n, sizeof *best);
	pthread_t *threads = calloc(n, sizeof *threads);
	puts("ready");
	fflush(stdout);
	if (!best || !threads || !fgets(line, sizeof line, stdin))
		return 1;
	for (long i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, work, &best[i]))
			return 1;
	for (long i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	qsort(best, n, sizeof *best, by_value);
	printf("%ld %.3f %.3f\n", n * n_bursts * n_hits, best[0], best[n / 2]);
	fflush(stdout);
	return !fgets(line, sizeof line, stdin);
}
