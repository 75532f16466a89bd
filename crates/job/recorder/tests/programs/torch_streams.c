/* Threads ask a pool for blocks on streams of their own, as PyTorch does. usage: torch_streams <library with streams> */
#include <dlfcn.h>
#include <mstx/ms_tools_ext.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

enum { THREADS = 3, BLOCKS = 4 };

static mstxDomainHandle_t caching, workspace;
static void (*choose)(long stream);

static void block(mstxDomainHandle_t domain, uint64_t number) {
    mstxMemVirtualRangeDesc_t region = {1, (void *)(uintptr_t)(0x100000000000 + number * 512), 512};
    mstxMemRegionsRegisterBatch_t begins = {.regionCount = 1, .regionDescArray = &region};
    mstxMemRegionRef_t reference = {.refType = MSTX_MEM_REGION_REF_TYPE_POINTER, .pointer = region.ptr};
    mstxMemRegionsUnregisterBatch_t ends = {.refCount = 1, .refArray = &reference};
    mstxMemRegionsRegister(domain, &begins);
    mstxMemRegionsUnregister(domain, &ends);
}

static void *run(void *thread) {
    for (uintptr_t turn = 0; turn < BLOCKS; turn++) {
        uintptr_t number = (uintptr_t)thread * BLOCKS + turn;
        choose(turn % 2 ? (long)number : 0);
        block(caching, number);
        block(workspace, number);
    }
    return NULL;
}

int main(int count, char **arguments) {
    void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) return 2;
    choose = (void (*)(long))dlsym(library, "choose");
    caching = mstxDomainCreateA("ptaCaching");
    workspace = mstxDomainCreateA("ptaWorkspace");
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, run, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("done\n");
    return 0;
}
