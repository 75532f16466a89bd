/* Pools of workers that use memory, wait for work and are cancelled while they do so. usage: cancelled_pool */
#include <ascend_hal.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static void *work(void *unused) {
    void *blocks[20];
    for (;;) {
        for (int i = 0; i < 20; i++) halMemAlloc(&blocks[i], 64, MEM_TYPE_DEVICE);
        for (int i = 0; i < 20; i++) halMemFree(blocks[i]);
        nanosleep(&(struct timespec){0, 50000}, NULL);
    }
    return unused;
}

int main(void) {
    for (int round = 0; round < 30; round++) {
        pthread_t workers[4];
        for (int i = 0; i < 4; i++) pthread_create(&workers[i], NULL, work, NULL);
        nanosleep(&(struct timespec){0, 7000 * round}, NULL);
        for (int i = 0; i < 4; i++) pthread_cancel(workers[i]);
        for (int i = 0; i < 4; i++) pthread_join(workers[i], NULL);
    }
    puts("shut down");
    return 0;
}
