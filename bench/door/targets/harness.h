/* The loop around every traced program of this benchmark, so that their numbers can be compared. Holds no probes.

   The program says "ready" and then obeys lines on its standard input until that ends, so that a tracer can attach to it
   while it runs:

     burst MODE EVENTS CHUNKS GAP_US   times CHUNKS bursts of EVENTS hits with a pause of GAP_US between them, in which
                                       the tracer can drain its ring; answers "HITS MIN MEDIAN", ns per hit
     pace MODE RATE SECONDS            RATE * SECONDS hits, evenly, never faster over more than a millisecond, slower
                                       while others have the CPU; answers "HITS SECONDS"

   HITS is every hit since the program began. */
#ifndef HARNESS_H
#define HARNESS_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct mode {
	const char *name;
	void (*run)(uint64_t n_hits);
};

/* A loop whose body is the thing measured; `i` counts. The empty asm keeps the counter in a register and stops the
   compiler from unrolling. */
#define MODE(fn, body)                                                          \
	static __attribute__((noinline, aligned(64))) void fn(uint64_t n_hits)  \
	{                                                                       \
		for (uint64_t i = 0; i < n_hits; i++) {                         \
			body;                                                   \
			__asm__ volatile("" : "+r"(i));                         \
		}                                                               \
	}

static uint64_t n_hits_ever;

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void burst(const struct mode *mode, uint64_t n_hits, size_t n_chunks, useconds_t gap_us)
{
	double *ns = calloc(n_chunks, sizeof *ns);
	if (!ns)
		abort();
	for (size_t c = 0; c < n_chunks; c++) {
		usleep(gap_us);
		/* After the pause caches are cold and the CPU may have slept; nobody's tracer is to blame for that. */
		mode->run(100);
		uint64_t start = now_ns();
		mode->run(n_hits);
		ns[c] = (double)(now_ns() - start) / (double)n_hits;
		n_hits_ever += n_hits + 100;
	}
	qsort(ns, n_chunks, sizeof *ns, by_value);
	printf("%llu %.3f %.3f\n", (unsigned long long)n_hits_ever, ns[0], ns[n_chunks / 2]);
	free(ns);
}

static void pace(const struct mode *mode, uint64_t rate, double seconds)
{
	const uint64_t group = 20, n_wanted = (uint64_t)(seconds * (double)rate);
	const uint64_t group_ns = group * 1000000000u / rate, late_ns = 1000000;
	uint64_t start = now_ns(), now = start, due = start, n_hits = 0;
	while (n_hits < n_wanted) {
		if (now >= due) {
			mode->run(group);
			n_hits += group;
			due += group_ns;
			/* What was missed while others had the CPU is not made up for faster than this. */
			if (now > due + late_ns)
				due = now - late_ns;
		}
		now = now_ns();
	}
	n_hits_ever += n_hits;
	printf("%llu %.3f\n", (unsigned long long)n_hits_ever, (double)(now - start) * 1e-9);
}

static int obey(const struct mode *modes, size_t n_modes)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	char line[200], verb[16], name[16];
	double a, b, c;
	while (fgets(line, sizeof line, stdin)) {
		int n_read = sscanf(line, "%15s %15s %lf %lf %lf", verb, name, &a, &b, &c);
		const struct mode *mode = NULL;
		for (size_t i = 0; n_read > 1 && i < n_modes; i++)
			if (!strcmp(modes[i].name, name))
				mode = &modes[i];
		if (mode && n_read == 5 && !strcmp(verb, "burst"))
			burst(mode, (uint64_t)a, (size_t)b, (useconds_t)c);
		else if (mode && n_read == 4 && !strcmp(verb, "pace"))
			pace(mode, (uint64_t)a, b);
		else {
			fprintf(stderr, "not understood: %s", line);
			return 2;
		}
	}
	return 0;
}

#endif
