/* Asks for memory until it is refused; calls the driver directly and by name. usage: quota */
#define _GNU_SOURCE
#include <ascend_hal.h>
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
    int (*by_name)(void **, unsigned long long, unsigned long long);
    *(void **)&by_name = dlsym(RTLD_DEFAULT, "halMemAlloc");
    for (int i = 0; i < 10; i++) {
        void *block = NULL;
        int direct = halMemAlloc(&block, 90, MEM_TYPE_DEVICE);
        if (!direct) halMemFree(block);
        int named = by_name(&block, 10, MEM_TYPE_DEVICE);
        if (!named) halMemFree(block);
        printf("%d %d\n", direct, named);
    }
    return 0;
}
