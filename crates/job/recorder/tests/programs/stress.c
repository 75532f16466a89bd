/*
 * Threads do everything a job can do with memory, in random order, and pass blocks to each other.
 * usage: stress <threads> <operations per thread> <seed>
 */
#define MSTX_NO_IMPL
#include <acl/acl.h>
#include <ascend_hal.h>
#include <mstx/ms_tools_ext.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELD = 64, EXCHANGE = 128, POOLS = 5, POOL_BLOCKS = 2048, BATCH = 4, PINNED_BLOCKS = 512 };

static const char *pool_names[POOLS] = {"ptaCaching", "msleaks", "ptaWorkspace", "mindsporeMemPool", "atb"};
static _Atomic(void *) blocks_on_offer[EXCHANGE], handles_on_offer[EXCHANGE];
static atomic_int pool_block_state[POOLS][POOL_BLOCKS]; /* 0 free, 1 being changed, 2 live */
static mstxMemRegionHandle_t pool_block_handle[POOLS][POOL_BLOCKS];
static atomic_int pinned_state[PINNED_BLOCKS];
static char pinned_memory[PINNED_BLOCKS][64];
static long operations;
static unsigned seed;

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state >> 11;
}

static void expect(int condition, const char *what) {
    if (!condition) {
        fprintf(stderr, "unexpected: %s\n", what);
        abort();
    }
}

/* Takes any slot from one state to "being changed"; -1 if none is found quickly. */
static int claim(atomic_int *states, int count, int from, uint64_t *random) {
    for (int attempt = 0; attempt < 8; attempt++) {
        int index = next_random(random) % count, expected = from;
        if (atomic_compare_exchange_strong(&states[index], &expected, 1)) return index;
    }
    return -1;
}

static void allocate(void **held, uint64_t *random) {
    static const uint64_t types[] = {MEM_TYPE_SVM, MEM_TYPE_DEVICE, MEM_TYPE_DEVICE, MEM_TYPE_HOST, MEM_TYPE_DVPP};
    void **slot = &held[next_random(random) % HELD];
    if (*slot) return;
    uint64_t flag = next_random(random) % 4 | types[next_random(random) % 5] | MEM_MODULE(next_random(random) % 80);
    if (next_random(random) % 16 == 0) flag |= MEM_PAGE_HUGE;
    if (next_random(random) % 64 == 0) flag |= MEM_PAGE_GIANT;
    expect(halMemAlloc(slot, 1 + next_random(random) % 100000, flag) == 0, "halMemAlloc failed");
}

static void release_block(void **held, uint64_t *random) {
    void **slot = &held[next_random(random) % HELD];
    *slot = atomic_exchange(&blocks_on_offer[next_random(random) % EXCHANGE], *slot);
    if (*slot) expect(halMemFree(*slot) == 0, "halMemFree failed");
    *slot = NULL;
}

static void create(drv_mem_handle_t **held, uint64_t *random) {
    drv_mem_handle_t **slot = &held[next_random(random) % HELD];
    struct drv_mem_prop prop = {next_random(random) % 8 != 0, next_random(random) % 4, next_random(random) % 80,
                                next_random(random) % 3, 0, 0};
    if (!*slot) expect(halMemCreate(slot, 4096 * (1 + next_random(random) % 8), &prop, 0) == 0, "halMemCreate failed");
}

static void release_handle(drv_mem_handle_t **held, uint64_t *random) {
    drv_mem_handle_t **slot = &held[next_random(random) % HELD];
    *slot = atomic_exchange(&handles_on_offer[next_random(random) % EXCHANGE], (void *)*slot);
    if (*slot) expect(halMemRelease(*slot) == 0, "halMemRelease failed");
    *slot = NULL;
}

static void pin(uint64_t *random) {
    int index = claim(pinned_state, PINNED_BLOCKS, 0, random);
    if (index < 0) return;
    uint32_t flag = next_random(random) % 4 ? 0x10000000 : 2;
    expect(aclrtHostRegisterV2(pinned_memory[index], 1 + next_random(random) % 64, flag) == 0, "register failed");
    atomic_store(&pinned_state[index], 2);
}

static void unpin(uint64_t *random) {
    int index = claim(pinned_state, PINNED_BLOCKS, 2, random);
    if (index < 0) return;
    expect(aclrtHostUnregister(pinned_memory[index]) == 0, "unregister failed");
    atomic_store(&pinned_state[index], 0);
}

static void *pool_address(int pool, int index) { return (void *)(0x700000000000 + ((uint64_t)pool << 32) + index * 512); }

static void register_regions(int pool, uint64_t *random) {
    int index[BATCH], count = 0;
    for (int wanted = 1 + next_random(random) % BATCH; count < wanted; count++) {
        index[count] = claim(pool_block_state[pool], POOL_BLOCKS, 0, random);
        if (index[count] < 0) break;
    }
    mstxDomainHandle_t domain = mstxDomainCreateA(pool_names[pool]);
    expect(domain != NULL, "no domain");
    mstxMemVirtualRangeDesc_t ranges[BATCH];
    mstxMemRegionHandle_t handles[BATCH];
    for (int i = 0; i < count; i++) {
        ranges[i] = (mstxMemVirtualRangeDesc_t){next_random(random) % 4, pool_address(pool, index[i]),
                                                1 + next_random(random) % 100000};
    }
    /* So much that no device's total comes twice in a row: that would not be recorded again. */
    mstxMemVirtualRangeDesc_t heap_range = {next_random(random) % 4, pool_address(pool, 0), next_random(random) >> 20};
    mstxMemHeapDesc_t heap;
    memset(&heap, 0xa5, sizeof heap);
    heap.typeSpecificDesc = &heap_range;
    mstxMemHeapHandle_t heap_handle = mstxMemHeapRegister(domain, &heap);
    if (pool == 4) expect(heap_handle != NULL, "atb needs a heap handle");
    mstxMemRegionsRegisterBatch_t batch;
    memset(&batch, 0xa5, sizeof batch); /* frameworks leave most of this uninitialised */
    batch.regionCount = count;
    batch.regionDescArray = ranges;
    if (pool == 4) batch.regionHandleArrayOut = handles;
    mstxMemRegionsRegister(domain, &batch);
    for (int i = 0; i < count; i++) {
        pool_block_handle[pool][index[i]] = pool == 4 ? handles[i] : NULL;
        atomic_store(&pool_block_state[pool][index[i]], 2);
    }
    if (next_random(random) % 16 == 0) mstxMemHeapUnregister(domain, (mstxMemHeapHandle_t)pool_address(pool, 0));
}

static void unregister_regions(int pool, uint64_t *random) {
    mstxMemRegionRef_t references[BATCH];
    int index[BATCH], count = 0;
    for (int wanted = 1 + next_random(random) % BATCH; count < wanted; count++) {
        index[count] = claim(pool_block_state[pool], POOL_BLOCKS, 2, random);
        if (index[count] < 0) break;
        memset(&references[count], 0xa5, sizeof references[count]);
        if (pool == 4) {
            references[count].refType = MSTX_MEM_REGION_REF_TYPE_HANDLE;
            references[count].handle = pool_block_handle[pool][index[count]];
        } else {
            references[count].refType = MSTX_MEM_REGION_REF_TYPE_POINTER;
            references[count].pointer = pool_address(pool, index[count]);
        }
    }
    mstxMemRegionsUnregisterBatch_t batch = {count, references};
    mstxMemRegionsUnregister(mstxDomainCreateA(pool_names[pool]), &batch);
    for (int i = 0; i < count; i++) atomic_store(&pool_block_state[pool][index[i]], 0);
}

static void annotate(uint64_t *random) {
    static const char *messages[] = {"step start", "a, \"quoted\" text", "", "= 1 + 1", NULL};
    const char *message = messages[next_random(random) % 5];
    mstxDomainHandle_t domain = mstxDomainCreateA(next_random(random) % 2 ? "communication" : "ptaCaching");
    switch (next_random(random) % 4) {
    case 0: mstxMarkA(message, NULL); break;
    case 1: mstxRangeEnd(mstxRangeStartA(message, NULL)); break;
    case 2: mstxDomainMarkA(domain, message, NULL); break;
    default: mstxDomainRangeEnd(domain, mstxDomainRangeStartA(domain, message, NULL)); break;
    }
}

static void fail(uint64_t *random) {
    void *block = NULL;
    switch (next_random(random) % 4) {
    case 0: expect(halMemAlloc(&block, UINT64_C(1) << 50, MEM_TYPE_DEVICE | 1) == 6, "memory should be out"); break;
    case 1: expect(halMemFree((void *)0x123456) != 0, "freed nonsense"); break;
    case 2: expect(halMemAlloc(&block, 64, UINT64_C(9) << 10) != 0, "allocated nonsense"); break;
    default: mstxMemRegionsRegister(mstxDomainCreateA("ptaCaching"), NULL); break;
    }
}

static void *work(void *argument) {
    int number = (int)(intptr_t)argument;
    uint64_t random = seed * 1000003u + number * 7919u + 1;
    void *held_blocks[HELD] = {0};
    drv_mem_handle_t *held_handles[HELD] = {0};
    expect(aclrtSetDevice(number % 4) == 0, "aclrtSetDevice failed");
    for (long i = 0; i < operations; i++) {
        int pool = next_random(&random) % POOLS, choice = next_random(&random) % 100;
        if (choice < 35) allocate(held_blocks, &random);
        else if (choice < 65) release_block(held_blocks, &random);
        else if (choice < 69) create(held_handles, &random);
        else if (choice < 73) release_handle(held_handles, &random);
        else if (choice < 76) pin(&random);
        else if (choice < 79) unpin(&random);
        else if (choice < 88) register_regions(pool, &random);
        else if (choice < 97) unregister_regions(pool, &random);
        else if (choice < 99) annotate(&random);
        else fail(&random);
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    int threads = atoi(arguments[1]);
    operations = atol(arguments[2]);
    seed = (unsigned)atoi(arguments[3]);
    expect(aclInit(NULL) == 0, "aclInit failed");
    pthread_t thread[64];
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], NULL, work, (void *)(intptr_t)i);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    expect(aclFinalize() == 0, "aclFinalize failed");
    return 0;
}
