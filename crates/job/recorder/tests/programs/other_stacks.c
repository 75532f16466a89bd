/* Records are interrupted by handlers that run on another stack ("alternate", "disarmed") or that switch to another
   user-level thread in the middle of whatever this one was doing ("switch"). */
#define _GNU_SOURCE
#include <ascend_hal.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif
enum { THREADS = 2, FIBERS = 4, BLOCKS = 400000, STACK_BYTES = 256 << 10 };

static unsigned long handled;

static void use_memory(int count, size_t size) {
    for (int i = 0; i < count; i++) {
        void *block;
        if (halMemAlloc(&block, size, MEM_TYPE_DEVICE) || halMemFree(block)) abort();
    }
}

static void on_timer(int signal_number) {
    (void)signal_number;
    __atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED);
    use_memory(1, 10);
}

/* A stack above the thread's own: seen from it, everything the thread does seems to be long gone. */
static void *stack_above(char *here) {
    for (size_t distance = 1 << 20; distance < 1UL << 34; distance <<= 1) {
        char *wanted = here - (uintptr_t)here % 4096 + distance;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        void *stack = mmap(wanted, STACK_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (stack != MAP_FAILED) return stack;
    }
    abort();
}

static void *worker(void *flags) {
    char here;
    stack_t stack = {.ss_sp = stack_above(&here), .ss_size = STACK_BYTES, .ss_flags = *(int *)flags};
    if (sigaltstack(&stack, NULL)) abort();
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    timer_t timer;
    struct itimerspec often = {{0, 20000}, {0, 20000}};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &often, NULL)) abort();
    use_memory(BLOCKS / THREADS, 64);
    timer_delete(timer);
    return NULL;
}

static void run_threads(int flags) {
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, worker, &flags);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static ucontext_t fibers[FIBERS], origin;
static volatile int current, running = FIBERS;
static volatile char is_over[FIBERS];

static int next_fiber(void) {
    int next = current;
    do next = (next + 1) % FIBERS;
    while (is_over[next]);
    return next;
}

static void on_switch(int signal_number) {
    (void)signal_number;
    handled++;
    int from = current, to = next_fiber();
    current = to;
    if (to != from) swapcontext(&fibers[from], &fibers[to]);
}

/* Fibers are switched with the signal blocked: another one in the middle of the switch would tear the contexts. */
static void let_timer(int how) {
    sigset_t timer;
    sigemptyset(&timer);
    sigaddset(&timer, SIGALRM);
    sigprocmask(how, &timer, NULL);
}

static void fiber(void) {
    let_timer(SIG_UNBLOCK);
    use_memory(BLOCKS / FIBERS, 64);
    let_timer(SIG_BLOCK);
    is_over[current] = 1;
    if (--running == 0) setcontext(&origin);
    current = next_fiber();
    setcontext(&fibers[current]);
}

static void run_fibers(void) {
    let_timer(SIG_BLOCK);
    for (int i = 0; i < FIBERS; i++) {
        getcontext(&fibers[i]);
        int flags = MAP_PRIVATE | MAP_ANONYMOUS;
        fibers[i].uc_stack.ss_sp = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
        fibers[i].uc_stack.ss_size = STACK_BYTES;
        makecontext(&fibers[i], fiber, 0);
    }
    struct sigaction action = {.sa_handler = on_switch, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &timer, NULL);
    swapcontext(&origin, &fibers[0]);
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, NULL);
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "";
    if (!strcmp(how, "switch")) run_fibers();
    else run_threads(!strcmp(how, "disarmed") ? (int)SS_AUTODISARM : 0);
    void *block;
    halMemAlloc(&block, 1000000 + handled, MEM_TYPE_DEVICE);
    puts("over");
    return 0;
}
