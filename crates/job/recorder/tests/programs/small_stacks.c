/* Threads and signal handlers with as little stack as there may be. usage: small_stacks */
#define _GNU_SOURCE
#include <ascend_hal.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIGNAL_STACK_BYTES = 8192 };

static int refused, served;

static void use_memory(void) {
    void *block = NULL;
    if (!halMemAlloc(&block, 64, MEM_TYPE_DEVICE) && !halMemFree(block)) served++;
    if (halMemAlloc(&block, 1ull << 60, MEM_TYPE_DEVICE)) refused++;
}

static void *in_thread(void *unused) {
    use_memory();
    return unused;
}

static void in_handler(int signal) {
    (void)signal;
    use_memory();
}

int main(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16384);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, in_thread, NULL)) return 3;
        pthread_join(thread, NULL);
    }
    printf("threads: %d served, %d refused\n", served, refused);
    fflush(stdout);
    /* A signal stack with a page in front of it that tells whether it was written to. */
    char *memory = mmap(NULL, 4096 + SIGNAL_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 0x5a, 4096);
    stack_t stack = {.ss_sp = memory + 4096, .ss_size = SIGNAL_STACK_BYTES};
    struct sigaction action = {.sa_handler = in_handler, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&stack, NULL) || sigaction(SIGUSR1, &action, NULL)) return 4;
    raise(SIGUSR1);
    int overwritten = 0;
    for (int i = 0; i < 4096; i++) overwritten += memory[i] != 0x5a;
    printf("handler: %d served, %d refused, %d bytes overwritten\n", served, refused, overwritten);
    return 0;
}
