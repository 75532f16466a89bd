/* Random call trees through three units built differently: this program, a static library and a
   library loaded at run time. Arguments: path of that library, trees per thread, threads. */
#include "probe.h"

#include <dlfcn.h>
#include <pthread.h>

#define PREFIX program
#include "functions.h"

extern int (*archive_functions[])(struct tour *, int);
extern const uint32_t archive_function_count;

static int (*all_functions[64])(struct tour *, int);
static uint32_t all_count;
static long trees_per_thread;
static long checked_frames[64];

static __thread long frames_here;
static void at_end(void) { frames_here += (long)check_stack(); }

static void add(int (**functions)(struct tour *, int), uint32_t count) {
    for (uint32_t index = 0; index < count; index++) all_functions[all_count++] = functions[index];
}

static void *run(void *argument) {
    long number = (long)argument;
    struct tour tour = {0x9e3779b97f4a7c15u * (uint64_t)(number + 1), at_end, all_functions, all_count};
    for (long tree = 0; tree < trees_per_thread; tree++) {
        int depth = (int)(next_random(&tour.random) % 40);
        all_functions[next_random(&tour.random) % all_count](&tour, depth);
    }
    checked_frames[number] = frames_here;
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    trees_per_thread = atol(argv[2]);
    long threads = atol(argv[3]);
    add(program_functions, program_function_count);
    add(archive_functions, archive_function_count);
    add(dlsym(library, "plugin_functions"), *(uint32_t *)dlsym(library, "plugin_function_count"));
    pthread_t handles[64];
    for (long number = 0; number < threads; number++) pthread_create(&handles[number], NULL, run, (void *)number);
    long total = 0;
    for (long number = 0; number < threads; number++) {
        pthread_join(handles[number], NULL);
        total += checked_frames[number];
    }
    run((void *)63);
    printf("ok %ld trees %ld frames\n", trees_per_thread * (threads + 1), total + checked_frames[63]);
    return 0;
}
