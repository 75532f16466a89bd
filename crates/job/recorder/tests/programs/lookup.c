/* Asks for functions by name in every way there is. usage: lookup [<driver library> <runtime library>] */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>

typedef int (*allocate_function)(void **, uint64_t, uint64_t);
typedef int (*free_function)(void *);
typedef int (*register_function)(void *, uint64_t, uint32_t);

static void ask(const char *how, void *handle) {
    static const char *names[] = {"halMemAlloc", "halMemFree", "aclrtHostRegisterV2", "aclrtHostUnregister",
                                  "no_such_function", "printf", "InitInjectionMstxx"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        dlerror();
        void *found = dlsym(handle, names[i]);
        printf("%s %s: %s, error %s\n", how, names[i], found ? "found" : "nothing", dlerror() ? "set" : "clear");
    }
}

int main(int count, char **arguments) {
    ask("default", RTLD_DEFAULT);
    ask("next", RTLD_NEXT);
    void *self = dlopen(NULL, RTLD_NOW);
    ask("self", self);
    if (count < 3) return 0;
    void *driver = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL), *runtime = dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL);
    if (!driver || !runtime) {
        printf("%s\n", dlerror());
        return 1;
    }
    ask("driver", driver);
    ask("runtime", runtime);
    allocate_function allocate = (allocate_function)dlsym(driver, "halMemAlloc");
    free_function release = (free_function)dlsym(driver, "halMemFree");
    register_function pin = (register_function)dlsym(runtime, "aclrtHostRegisterV2");
    free_function unpin = (free_function)dlsym(runtime, "aclrtHostUnregister");
    static char memory[64];
    void *block = NULL;
    errno = 44;
    printf("%d", allocate(&block, 300, 1 << 10));
    printf("%d", release(block));
    printf("%d", pin(memory, 64, 0x10000000));
    printf("%d", unpin(memory));
    printf(" errno %d\n", errno);
    return 0;
}
