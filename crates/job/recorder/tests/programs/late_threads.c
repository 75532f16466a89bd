/* Threads that use memory when the C library has gone through all their destructors but one. usage: late_threads */
#include <ascend_hal.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 200 };

static pthread_key_t key;
static int rounds[THREADS + 1], failed;

static void use_memory(void) {
    void *block;
    if (halMemAlloc(&block, 64, MEM_TYPE_DEVICE) || halMemFree(block)) failed++;
}

static void end(void *value) {
    int *round = value;
    use_memory();
    if (++*round < PTHREAD_DESTRUCTOR_ITERATIONS) pthread_setspecific(key, value);
}

static void *work(void *value) {
    pthread_setspecific(key, value);
    return NULL;
}

int main(void) {
    pthread_key_create(&key, end);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, &rounds[i])) return 3;
        pthread_join(thread, NULL);
    }
    printf("%d failed, %d rounds\n", failed, rounds[0]);
    return 0;
}
