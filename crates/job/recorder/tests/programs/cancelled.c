/* A cancelled thread works on until it says itself that it can be ended. usage: cancelled */
#include <ascend_hal.h>
#include <pthread.h>
#include <stdio.h>

static int done;

static int use_memory(void) {
    void *block;
    return halMemAlloc(&block, 64, MEM_TYPE_DEVICE) || halMemFree(block);
}

static void *work(void *unused) {
    void *block;
    pthread_cancel(pthread_self());
    for (int i = 0; i < 60000; i++) done += !use_memory();
    done += halMemAlloc(&block, 1ull << 60, MEM_TYPE_DEVICE) != 0;
    pthread_testcancel();
    return unused;
}

static void use_memory_at_end(void *unused) {
    (void)unused;
    done += !use_memory();
}

/* Ends without having been asked: what remains of the thread runs with the cancellation still to come. */
static void *end(void *key) {
    pthread_cancel(pthread_self());
    pthread_setspecific(*(pthread_key_t *)key, key);
    return key;
}

int main(void) {
    pthread_t thread;
    pthread_key_t key;
    void *result;
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, &result);
    printf("cancelled %d, done %d\n", result == PTHREAD_CANCELED, done);
    pthread_key_create(&key, use_memory_at_end);
    pthread_create(&thread, NULL, end, &key);
    pthread_join(thread, &result);
    printf("cancelled %d, done %d\n", result == PTHREAD_CANCELED, done);
    printf("goes on: %d\n", use_memory());
    return 0;
}
