/* Operators in two phases, the second on a thread of its own, as frameworks with a queue do it.
 *
 * One file, three parts: the library that all operators have in common (-DBASE), a library with operators that imports it
 * (-DOPERATORS), and the program, which loads them late and privately. usage: prepared_work <library with operators> */
#include <stdint.h>
#include <stdio.h>

void add_cache(void *executor) __asm__("_ZN13aclOpExecutor8AddCacheEv");
int run_executor(void *workspace, uint64_t bytes, void *executor, void *stream)
    __asm__("_Z19CommonOpExecutorRunPvmP13aclOpExecutorS_");

#if defined(BASE)

static char cached;

void add_cache(void *executor) { *(char *)executor = 1; }
int run_executor(void *workspace, uint64_t bytes, void *executor, void *stream) {
    return executor == &cached ? 7 : (int)(bytes + (uintptr_t)stream + *(char *)executor) + (workspace == 0);
}
void *PTAGetExecCache(uint64_t key, uint64_t *bytes) { return *bytes = 64, key ? &cached : 0; }
void *PTAFindExecCache(const uint8_t *key, size_t length, uint64_t *bytes) { return *bytes = length, key ? &cached : 0; }
int NnopbaseRunForWorkspace(void *executor, uint64_t *bytes) { return *bytes = 128, *(char *)executor; }
int NnopbaseRunWithWorkspace(void *executor, void *stream, void *workspace, uint64_t bytes) {
    return (int)(bytes + (uintptr_t)stream + *(char *)executor) + (workspace == 0);
}

#elif defined(OPERATORS)

static char executor;

int aclnnAddGetWorkspaceSize(uint64_t *bytes, void **made) {
    add_cache(&executor);
    *bytes = 32;
    *made = &executor;
    return 0;
}
int aclnnAdd(void *workspace, uint64_t bytes, void *made, void *stream) {
    return run_executor(workspace, bytes, made, stream);
}

#else

#include <acl/acl.h>
#include <ascend_hal.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

static int (*second_phase)(void *, uint64_t, void *, void *);
static int (*second_phase_of_single)(void *, void *, void *, uint64_t);
static void *executor;
static uint64_t bytes;

static void *launch(void *unused) {
    errno = 33;
    printf("launched %d errno %d\n", second_phase(0, bytes, executor, (void *)16), errno);
    return unused;
}
static void *launch_single(void *unused) {
    printf("launched %d\n", second_phase_of_single(executor, (void *)16, 0, bytes));
    return unused;
}
static void in_queue(void *(*what)(void *)) {
    pthread_t thread;
    pthread_create(&thread, 0, what, 0);
    pthread_join(thread, 0);
}

int main(int count, char **arguments) {
    aclInit(0);
    aclrtSetDevice(0);
    void *block = 0, *operators = count > 1 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : 0;
    if (!operators || halMemAlloc(&block, 300, MEM_TYPE_DEVICE)) return 1;
    int (*first_phase)(uint64_t *, void **) = (int (*)(uint64_t *, void **))dlsym(operators, "aclnnAddGetWorkspaceSize");
    second_phase = (int (*)(void *, uint64_t, void *, void *))dlsym(operators, "aclnnAdd");
    void *(*cached)(uint64_t, uint64_t *) = (void *(*)(uint64_t, uint64_t *))dlsym(operators, "PTAGetExecCache");
    void *(*found)(const void *, size_t, uint64_t *) =
        (void *(*)(const void *, size_t, uint64_t *))dlsym(operators, "PTAFindExecCache");
    int (*measured)(void *, uint64_t *) = (int (*)(void *, uint64_t *))dlsym(operators, "NnopbaseRunForWorkspace");
    second_phase_of_single = (int (*)(void *, void *, void *, uint64_t))dlsym(operators, "NnopbaseRunWithWorkspace");
    errno = 44;
    printf("prepared %d errno %d\n", first_phase(&bytes, &executor), errno);
    in_queue(launch);
    void *own = executor;
    printf("nothing cached %d, %d\n", cached(0, &bytes) == 0, found(0, 1, &bytes) == 0);
    printf("cached %d of %d bytes\n", (executor = cached(1, &bytes)) != 0, (int)bytes);
    in_queue(launch);
    printf("found %d of %d bytes\n", (executor = found("key", 3, &bytes)) != 0, (int)bytes);
    in_queue(launch);
    executor = own;
    printf("single %d\n", measured(executor, &bytes));
    in_queue(launch_single);
    return halMemFree(block);
}

#endif
