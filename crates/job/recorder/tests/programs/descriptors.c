/* A job without free descriptors, or without any. usage: descriptors none|closed <file> */
#define _GNU_SOURCE
#include <ascend_hal.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int use_memory(int count) {
    void *block;
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        errno = 33;
        if (halMemAlloc(&block, 64, MEM_TYPE_DEVICE) || halMemFree(block) || errno != 33) wrong++;
    }
    return wrong;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    int early = use_memory(1);
    if (!strcmp(arguments[1], "none")) {
        struct rlimit limit = {0, 0};
        while (dup(0) >= 0 && dup(0) < 60) {}
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = 3;
        setrlimit(RLIMIT_NOFILE, &limit);
        printf("%d %d\n", early, use_memory(100000));
        return 0;
    }
    for (int i = 0; i < 1024; i++) close(i);
    int file = open(arguments[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
    dup(file);
    dup(file);
    int wrong = use_memory(100000);
    dprintf(file, "%d %d %d\n", file, early, wrong);
    return 0;
}
