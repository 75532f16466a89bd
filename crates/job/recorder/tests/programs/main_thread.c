/* Uses memory in the main thread, and counts how often somebody asks for its signal stack. usage: main_thread */
#define _GNU_SOURCE
#include <ascend_hal.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static int questions;

int sigaltstack(const stack_t *stack, stack_t *before) {
    questions++;
    return (int)syscall(SYS_sigaltstack, stack, before);
}

int main(void) {
    for (int i = 0; i < 1000; i++) {
        void *block;
        if (halMemAlloc(&block, 64, MEM_TYPE_DEVICE) || halMemFree(block)) return 3;
    }
    printf("%d\n", questions);
    return 0;
}
