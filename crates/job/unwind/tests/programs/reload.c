/* Libraries that are unloaded and replaced by others at the same address, under the same name, and
   whose file is deleted. Arguments: directory, libraries to take turns. */
#include "probe.h"

#include <dlfcn.h>
#include <unistd.h>

static long checked;
static void callback(void) {
    check_stack();
    checked++;
}

static void copy(const char *from, const char *to) {
    char command[9000];
    snprintf(command, sizeof command, "cp '%s' '%s.new' && mv '%s.new' '%s'", from, to, to, to);
    if (system(command) != 0) exit(2);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    char path[4200];
    snprintf(path, sizeof path, "%s/current.so", argv[1]);
    void *same_address = NULL;
    int reused = 0;
    for (int round = 0; round < 120; round++) {
        copy(argv[2 + round % (argc - 2)], path);
        void *library = dlopen(path, RTLD_NOW);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 2;
        }
        if (round % 4 == 3) unlink(path);
        void (*enter)(void (*)(void), int) = (void (*)(void (*)(void), int))dlsym(library, "enter");
        if (same_address == (void *)((uintptr_t)enter & ~0xfffful)) reused++;
        same_address = (void *)((uintptr_t)enter & ~0xfffful);
        for (int depth = 0; depth < 12; depth++) enter(callback, depth);
        dlclose(library);
        for (int event = 0; event < 70; event++) callback();
    }
    uint32_t defined, gone;
    probe_modules(&defined, &gone);
    printf("ok %ld stacks, %d of 120 at the same address, %u modules defined, %u gone\n", checked, reused, defined, gone);
    return reused > 20 && gone > 20 ? 0 : 1;
}
