/* Threads that use more memory than a trace has room for; then a forked child that uses a little, and a sudden end.
 * usage: limit <threads> <pairs> */
#include <ascend_hal.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static long pairs;

static void use(long count) {
    for (long i = 0; i < count; i++) {
        void *block;
        if (halMemAlloc(&block, 64, MEM_TYPE_DEVICE) || halMemFree(block)) _exit(3);
    }
}

static void *run(void *unused) {
    use(pairs);
    return unused;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    int threads = atoi(arguments[1]);
    pairs = atol(arguments[2]);
    pthread_t thread[64];
    for (int i = 0; i < threads && i < 64; i++) pthread_create(&thread[i], NULL, run, NULL);
    use(pairs);
    for (int i = 0; i < threads && i < 64; i++) pthread_join(thread[i], NULL);
    if (!fork()) {
        use(10);
        return 0;
    }
    wait(NULL);
    raise(SIGKILL);
    return 4;
}
