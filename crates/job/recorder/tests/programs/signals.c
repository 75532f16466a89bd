/* Memory calls in signal handlers, on small alternate stacks, and jumps out of handlers. */
#define _GNU_SOURCE
#include <ascend_hal.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t handled, jumping, overflowed;
static sigjmp_buf back;
static char alternate[16384];

static void on_timer(int signal_number) {
    int before = errno;
    (void)signal_number;
    handled = handled + 1;
    void *block;
    if (halMemAlloc(&block, 10, MEM_TYPE_DEVICE) || halMemFree(block)) abort();
    if (errno != before) abort();
    if (jumping && handled % 3 == 0) siglongjmp(back, 1);
}

static void on_overflow(int signal_number) {
    (void)signal_number;
    overflowed = 1;
    void *block;
    halMemAlloc(&block, 11, MEM_TYPE_DEVICE);
    siglongjmp(back, 1);
}

static volatile char *deeper(volatile char *above) {
    volatile char here[4096];
    here[0] = above ? above[0] : 1;
    if (here[0] == 2) return above;
    void *block;
    halMemAlloc(&block, 10, MEM_TYPE_DEVICE);
    halMemFree(block);
    return deeper(here) + here[0];
}

int main(void) {
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &timer, NULL);
    void *block;
    int wrong = 0;
    for (int i = 0; i < 300000; i++) {
        errno = 55;
        if (halMemAlloc(&block, 64, MEM_TYPE_DEVICE) || halMemFree(block) || errno != 55) wrong++;
    }
    jumping = 1;
    for (volatile int i = 0; i < 100; i++) {
        if (sigsetjmp(back, 1)) continue;
        for (;;) {
            halMemAlloc(&block, 64, MEM_TYPE_DEVICE);
            halMemFree(block);
        }
    }
    jumping = 0;
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, NULL);
    printf("wrong %d, handled %s\n", wrong, handled > 0 ? "some" : "none");
    action.sa_handler = on_overflow;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGSEGV, &action, NULL);
    if (!sigsetjmp(back, 1)) printf("%d\n", deeper(NULL)[0]);
    printf("overflowed %d\n", overflowed);
    errno = 66;
    int allocated = halMemAlloc(&block, 6500, MEM_TYPE_DEVICE), freed = halMemFree(block);
    printf("after %d %d %d\n", allocated, freed, errno);
    return 0;
}
