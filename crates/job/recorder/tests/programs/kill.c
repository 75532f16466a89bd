/* Allocates and frees without end, until something ends the process. usage: kill <threads> <how> <after microseconds> */
#include <ascend_hal.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *work(void *argument) {
    (void)argument;
    void *blocks[8] = {0};
    for (unsigned i = 0;; i++) {
        void **block = &blocks[i * 2654435761u >> 29];
        if (*block) {
            halMemFree(*block);
            *block = NULL;
        } else {
            halMemAlloc(block, 1 + i % 1000, MEM_TYPE_DEVICE | MEM_MODULE(3));
        }
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    pthread_t thread;
    for (int i = 0; i < atoi(arguments[1]); i++) pthread_create(&thread, NULL, work, NULL);
    usleep(atoi(arguments[3]));
    if (!strcmp(arguments[2], "abort")) abort();
    if (!strcmp(arguments[2], "segv")) *(volatile int *)8 = 1;
    if (!strcmp(arguments[2], "exit")) _exit(7);
    kill(getpid(), SIGKILL);
    return 0;
}
