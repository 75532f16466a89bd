/* Stacks inside signal handlers: raised, at random instructions, on the normal and on an
   alternative stack. */
#include "probe.h"

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#define PREFIX program
#include "functions.h"

static volatile long handled;
static volatile int computing;

static uint64_t outermost;

/* Compares only the outermost frame with the known one. */
static void check_outermost(void) {
    static uint64_t taken[LARGEST_DEPTH + 8];
    size_t count = 0;
    int id = probe_capture(LARGEST_DEPTH, taken, LARGEST_DEPTH + 8, &count);
    if (id == 0 || taken[count - 1] != outermost) {
        show("taken", taken, count);
        exit(1);
    }
}

static void handler(int number, siginfo_t *information, void *context) {
    (void)number, (void)information;
    if (!computing) return;
#ifdef __x86_64__
    uint64_t interrupted = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#else
    uint64_t interrupted = (uint64_t)((ucontext_t *)context)->uc_mcontext.pc;
#endif
    /* GCC's tables are wrong at the end of functions that realign a stack of variable size: there
       backtrace() skips frames or crashes. */
    if (interrupted - (uint64_t)program_aligned_variable < 512) check_outermost();
    else check_stack();
    handled++;
}

static void at_end(void) {
    volatile char text[64];
    memset((char *)text, 1, sizeof text);
}
static void at_end_raise(void) { raise(SIGUSR1); }

static void install(int number, int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = flags | SA_RESTART | SA_SIGINFO;
    sigaction(number, &action, NULL);
}

static volatile int sending;
static void *send(void *receiver) {
    while (sending) {
        pthread_kill(*(pthread_t *)receiver, SIGPROF);
        usleep(50);
    }
    return NULL;
}

int main(int argc, char **argv) {
    long wanted = argc > 1 ? atol(argv[1]) : 1000;
    static char stack[1 << 20];
    stack_t alternative = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternative, NULL);
    uint64_t frames[64];
    size_t count = 0;
    probe_capture(64, frames, 64, &count);
    outermost = frames[count - 1];
    for (int flags = 0; flags <= SA_ONSTACK; flags += SA_ONSTACK) {
        struct tour tour = {12345, at_end_raise, program_functions, program_function_count};
        install(SIGUSR1, flags);
        computing = 1;
        for (int tree = 0; tree < 500; tree++) program_functions[tree % (int)program_function_count](&tour, tree % 30);
        computing = 0;

        install(SIGPROF, flags);
        pthread_t sender;
        pthread_t receiver = pthread_self();
        sending = 1;
        pthread_create(&sender, NULL, send, &receiver);
        tour.at_end = at_end;
        long before = handled;
        computing = 1;
        while (handled - before < wanted) program_functions[next_random(&tour.random) % program_function_count](&tour, 12);
        computing = 0;
        sending = 0;
        pthread_join(sender, NULL);
    }
    printf("ok %ld\n", handled);
    return 0;
}
