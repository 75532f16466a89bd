/* Marks from several connections, and devices of marks. usage: marks <library with one()> <library with two()> */
#define MSTX_NO_IMPL
#include <acl/acl.h>
#include <dlfcn.h>
#include <mstx/ms_tools_ext.h>
#include <pthread.h>
#include <stdio.h>

static void *mark_without_device(void *argument) {
    mstxMarkA("no device chosen", NULL);
    return argument;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    printf("%d %d\n", aclInit(NULL), aclrtSetDevice(1));
    mstxMarkA("of the program", NULL);
    void (*one)(void) = (void (*)(void))dlsym(dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL), "one");
    void (*two)(void) = (void (*)(void))dlsym(dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL), "two");
    one();
    two();
    printf("%d\n", aclrtSetDevice(0));
    mstxMarkA("after another device", NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, mark_without_device, NULL);
    pthread_join(thread, NULL);
    return 0;
}
