/* Loads and unloads a library that finds the driver through its own search path. usage: reload <plugin> <how often> */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static const char *path;

static void *load_and_use(void *number) {
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin) {
        printf("%s\n", dlerror());
        return NULL;
    }
    dlsym(plugin, "no_such_symbol");
    int (*use)(uint64_t) = (int (*)(uint64_t))dlsym(plugin, "plugin_use");
    printf("%d, error %s\n", use(1000 + (intptr_t)number), dlerror() ? "set" : "clear");
    dlsym(plugin, "no_such_symbol");
    int result = use(1);
    printf("%d, error %s, closed %d\n", result, dlerror() ? "set" : "clear", dlclose(plugin));
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    path = arguments[1];
    for (intptr_t i = 0; i < atoi(arguments[2]); i++) {
        load_and_use((void *)i);
        pthread_t thread;
        pthread_create(&thread, NULL, load_and_use, (void *)i);
        pthread_join(thread, NULL);
    }
    return 0;
}
