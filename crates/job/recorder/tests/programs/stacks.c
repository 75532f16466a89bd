/* Uses memory from known places: several threads, a child of a fork, a library that is loaded anew, and
   an allocation that fails. usage: stacks <library> <rounds> */
#include <ascend_hal.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int rounds;

__attribute__((noinline)) static void innermost(void) {
    void *block;
    if (halMemAlloc(&block, 4096, MEM_TYPE_DEVICE)) exit(3);
    if (halMemFree(block)) exit(3);
}

__attribute__((noinline)) static void middle(int depth) {
    if (depth == 0) innermost();
    else middle(depth - 1);
    __asm__ volatile("");
}

__attribute__((noinline)) static void *outermost(void *unused) {
    for (int round = 0; round < rounds; round++) middle(round % 5);
    return unused;
}

static void use_library(const char *path) {
    for (int round = 0; round < 3; round++) {
        void *library = dlopen(path, RTLD_NOW);
        if (!library) exit(4);
        ((void (*)(void))dlsym(library, "allocate_in_library"))();
        dlclose(library);
    }
}

__attribute__((noinline)) static void fail(void) {
    void *block;
    if (!halMemAlloc(&block, 1ull << 60, MEM_TYPE_DEVICE)) exit(5);
    __asm__ volatile("");
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    rounds = atoi(arguments[2]);
    pthread_t threads[3];
    for (int index = 0; index < 3; index++) pthread_create(&threads[index], NULL, outermost, NULL);
    for (int index = 0; index < 3; index++) pthread_join(threads[index], NULL);
    outermost(NULL);
    use_library(arguments[1]);
    fail();
    pid_t child = fork();
    if (child == 0) {
        outermost(NULL);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    outermost(NULL);
    return WEXITSTATUS(status);
}
