/* A daemon that closed its output streams and goes on printing: every print must fail. usage: closed_streams <file> */
#include <ascend_hal.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

int drvGetDevNum(uint32_t *count);

static volatile int ended;
static long prints_that_succeeded;

static void *print(void *unused) {
    while (!ended) {
        if (write(1, "epoch 1 loss 0.123456789 .......", 32) > 0 || write(2, "warning", 7) > 0) prints_that_succeeded++;
    }
    return unused;
}

static void *use_memory(void *unused) {
    void *block;
    for (int i = 0; i < 150000; i++) {
        if (halMemAlloc(&block, 64, MEM_TYPE_DEVICE) || halMemFree(block)) return &prints_that_succeeded;
    }
    return unused;
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    /* The stand-in device opens files of its own when it is first used. */
    uint32_t cards;
    if (drvGetDevNum(&cards)) return 3;
    int log = open(arguments[1], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int kept = fcntl(log, F_DUPFD, 100);
    close(log);
    for (int i = 1; i < 3; i++) close(i);
    pthread_t printer, workers[2];
    void *failed = NULL;
    pthread_create(&printer, NULL, print, NULL);
    for (int i = 0; i < 2; i++) pthread_create(&workers[i], NULL, use_memory, NULL);
    for (int i = 0; i < 2; i++) {
        void *result;
        pthread_join(workers[i], &result);
        if (result) failed = result;
    }
    ended = 1;
    pthread_join(printer, NULL);
    for (int i = 1; i < 3; i++) {
        if (fcntl(i, F_GETFD) != -1) prints_that_succeeded += 1000000;
    }
    dprintf(kept, "%ld prints succeeded, %s\n", prints_that_succeeded, failed ? "memory failed" : "memory is fine");
    return 0;
}
