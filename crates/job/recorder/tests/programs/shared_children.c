/* Children that share the memory of their parent. usage: shared_children */
#define _GNU_SOURCE
#include <ascend_hal.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int use_memory(int count, unsigned long long size_bytes) {
    void *block;
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        if (halMemAlloc(&block, size_bytes, MEM_TYPE_DEVICE) || halMemFree(block)) wrong++;
    }
    return wrong;
}

static int in_clone(void *unused) {
    (void)unused;
    return use_memory(20, 200);
}

int main(void) {
    int status = -1, wrong = use_memory(10, 100);
    char *stack = malloc(1 << 20);
    int child = clone(in_clone, stack + (1 << 20) - 64, CLONE_VM | SIGCHLD, NULL);
    waitpid(child, &status, 0);
    printf("clone %d\n", status);
    wrong += use_memory(10, 101);
    child = vfork();
    if (!child) _exit(use_memory(30, 300));
    waitpid(child, &status, 0);
    printf("vfork %d\n", status);
    wrong += use_memory(10, 102);
    printf("%d wrong\n", wrong);
    return 0;
}
