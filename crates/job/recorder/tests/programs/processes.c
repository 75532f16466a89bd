/* Makes processes in every way there is; each uses memory, and says what it saw. */
#define _GNU_SOURCE
#include <ascend_hal.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void use_memory(const char *who, int count) {
    void *block = NULL;
    for (int i = 0; i < count; i++) {
        errno = 77;
        int allocated = halMemAlloc(&block, 100 + i, MEM_TYPE_DEVICE);
        int freed = halMemFree(block);
        if (allocated || freed || errno != 77) printf("%s: %d %d errno %d\n", who, allocated, freed, errno);
    }
    printf("%s used memory\n", who);
    fflush(stdout);
}

static void wait_for(pid_t child, const char *who) {
    int status = -1;
    waitpid(child, &status, 0);
    printf("%s ended with %d\n", who, status);
    fflush(stdout);
}

static void *background(void *stop) {
    void *block;
    while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) {
        halMemAlloc(&block, 64, MEM_TYPE_DEVICE);
        halMemFree(block);
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count > 1) {
        use_memory(arguments[1], 4);
        return 5;
    }
    pid_t child;
    if (!(child = fork())) {
        use_memory("child before any event", 2);
        exit(1);
    }
    wait_for(child, "first child");
    use_memory("parent", 10);
    if (!(child = fork())) {
        use_memory("child", 3);
        pid_t grandchild = fork();
        if (!grandchild) {
            use_memory("grandchild", 2);
            _exit(3);
        }
        wait_for(grandchild, "grandchild");
        exit(2);
    }
    wait_for(child, "child");
    if (!(child = fork())) exit(0);
    wait_for(child, "idle child");
    child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (!child) {
        use_memory("clone", 3);
        _exit(4);
    }
    wait_for(child, "clone");
    if (!(child = vfork())) {
        execl("/proc/self/exe", arguments[0], "image after vfork", (char *)NULL);
        _exit(126);
    }
    wait_for(child, "vfork");
    char *spawned[] = {arguments[0], "spawned image", NULL};
    posix_spawn(&child, "/proc/self/exe", NULL, NULL, spawned, environ);
    wait_for(child, "spawned");
    int stop = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, background, &stop);
    for (int i = 0; i < 20; i++) {
        if (!(child = fork())) {
            use_memory("child of threads", 2);
            exit(0);
        }
        wait_for(child, "child of threads");
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    use_memory("parent", 10);
    execl("/proc/self/exe", arguments[0], "image after exec", (char *)NULL);
    return 1;
}
