/* A program with a span, which it never enters after its start: it waits until it is ended. */
#include <sys/sdt.h>
#include <unistd.h>

static __attribute__((noinline)) void work(int n) {
    DTRACE_PROBE1(idle, work__start, n);
    DTRACE_PROBE1(idle, work__done, n);
}

int main(void) {
    work(1);
    for (;;)
        pause();
}
