/* Threads share pools as torch_npu's: under the lock of a device, every block comes with what the pool holds, which seldom
 * changes. A forked child goes on. usage: pool_totals <threads> <operations> */
#include <mstx/ms_tools_ext.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEVICES = 2, BLOCKS = 64 };

static mstxDomainHandle_t domain;
static pthread_mutex_t locks[DEVICES] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static int is_alive[DEVICES][BLOCKS];
static int64_t totals[DEVICES] = {1 << 20, 1 << 20};
static long operations;

static void *address_of(int device, int block) {
    return (void *)(uintptr_t)(0x100000000000 + ((uint64_t)device << 40) + (uint64_t)block * 512);
}

static void use(int device, int block, int grows) {
    pthread_mutex_lock(&locks[device]);
    if (grows) totals[device] += (totals[device] >> 20) % 2 ? 1 << 20 : -(1 << 19);
    mstxMemVirtualRangeDesc_t range = {device, address_of(device, block), totals[device]};
    mstxMemHeapDesc_t heap = {.typeSpecificDesc = &range};
    mstxMemHeapRegister(domain, &heap);
    if (is_alive[device][block]) {
        mstxMemRegionRef_t reference = {.refType = MSTX_MEM_REGION_REF_TYPE_POINTER, .pointer = range.ptr};
        mstxMemRegionsUnregisterBatch_t batch = {.refCount = 1, .refArray = &reference};
        mstxMemRegionsUnregister(domain, &batch);
    } else {
        mstxMemVirtualRangeDesc_t region = {device, range.ptr, 512};
        mstxMemRegionsRegisterBatch_t batch = {.regionCount = 1, .regionDescArray = &region};
        mstxMemRegionsRegister(domain, &batch);
    }
    is_alive[device][block] ^= 1;
    pthread_mutex_unlock(&locks[device]);
}

static void *run(void *number) {
    uint64_t random = (uintptr_t)number + 1;
    for (long operation = 0; operation < operations; operation++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        use(random >> 33 & 1, random >> 40 & (BLOCKS - 1), operation % 100 == 99);
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    int threads = atoi(arguments[1]);
    operations = atol(arguments[2]);
    domain = mstxDomainCreateA("ptaCaching");
    pthread_t thread[64];
    for (int i = 0; i < threads && i < 64; i++) pthread_create(&thread[i], NULL, run, (void *)(uintptr_t)i);
    for (int i = 0; i < threads && i < 64; i++) pthread_join(thread[i], NULL);
    pid_t child = fork();
    run((void *)77);
    if (!child) return 0;
    int status = -1;
    waitpid(child, &status, 0);
    return status != 0;
}
