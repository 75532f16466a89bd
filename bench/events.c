/*
 * The measured program: pairs of allocation and free under a call stack of known depth.
 *
 *   events hal|pool|malloc|chain|none <pairs> <threads> <depth> [live blocks]
 *
 * hal     halMemAlloc and halMemFree of the loaded driver
 * pool    blocks of a pool, as torch_npu tells tools about them: what the pool holds with every block
 * chain   the same, but the stack runs through a library with 50,000 symbols
 * malloc  malloc and free, for tools that watch those
 * none    nothing, to know what the loop itself costs
 *
 * With no threads the main thread does it, as in most training jobs.
 *
 * Prints the CPU time of all threads per event, the wall time, and the peak of resident memory, in one line.
 */
#include <mstx/ms_tools_ext.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int halMemAlloc(void **address, uint64_t size, uint64_t flag);
int halMemFree(void *address);
void chain_0(void (*body)(void *), void *argument);

static const char *kind;
static long pairs;
static int depth;
static long live_blocks;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *volatile kept;

static void hal_pairs(void)
{
    for (long pair = 0; pair < pairs; pair++) {
        void *address = NULL;
        halMemAlloc(&address, 512 * (uint64_t)(1 + pair % 4000), 0x700000000000400);
        kept = address;
        halMemFree(address);
    }
}

static void pool_pairs(void)
{
    mstxDomainHandle_t domain = mstxDomainCreateA("ptaCaching");
    for (long pair = 0; pair < pairs; pair++) {
        void *address = (void *)(0x12c041200000 + 512 * (uint64_t)(pair % 4000));
        mstxMemVirtualRangeDesc_t total = {0, address, 64 << 20}, block = {0, address, 512};
        mstxMemHeapDesc_t heap = {.typeSpecificDesc = &total};
        mstxMemRegionsRegisterBatch_t begins = {.regionCount = 1, .regionDescArray = &block};
        mstxMemRegionRef_t reference = {.refType = MSTX_MEM_REGION_REF_TYPE_POINTER, .pointer = address};
        mstxMemRegionsUnregisterBatch_t ends = {.refCount = 1, .refArray = &reference};
        mstxMemHeapRegister(domain, &heap);
        mstxMemRegionsRegister(domain, &begins);
        mstxMemHeapRegister(domain, &heap);
        mstxMemRegionsUnregister(domain, &ends);
    }
}

static void malloc_pairs(void)
{
    for (long pair = 0; pair < pairs; pair++) {
        kept = malloc(64 + (size_t)(pair % 64) * 8);
        free(kept);
    }
}

static void none_pairs(void)
{
    for (long pair = 0; pair < pairs; pair++) {
        kept = (void *)pair;
    }
}

static void body(void *result)
{
    uint64_t before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    if (!strcmp(kind, "malloc")) {
        malloc_pairs();
    } else if (!strcmp(kind, "none")) {
        none_pairs();
    } else if (!strcmp(kind, "pool")) {
        pool_pairs();
    } else {
        hal_pairs();
    }
    *(uint64_t *)result = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
}

static __attribute__((noinline)) void descend(int left, void *result)
{
    if (left > 0) {
        descend(left - 1, result);
    } else if (!strcmp(kind, "chain")) {
        chain_0(body, result);
    } else {
        body(result);
    }
    __asm__ volatile("" ::: "memory"); /* no tail call */
}

static void *run(void *result)
{
    for (long block = 0; block < live_blocks; block++) {
        void *address = NULL;
        halMemAlloc(&address, 1 << 20, 0x400);
    }
    descend(depth, result);
    return NULL;
}

/* Not getrusage: its peak is inherited from whoever started this program. */
static long peak_resident_kib(void)
{
    char line[128];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) {
        if (sscanf(line, "VmHWM: %ld", &kib) == 1) {
            break;
        }
    }
    if (status) {
        fclose(status);
    }
    return kib;
}

int main(int count, char **arguments)
{
    if (count < 5) {
        fprintf(stderr, "usage: events hal|pool|malloc|chain|none <pairs> <threads> <depth> [live blocks]\n");
        return 2;
    }
    kind = arguments[1];
    pairs = atol(arguments[2]);
    int threads = atoi(arguments[3]);
    depth = atoi(arguments[4]);
    live_blocks = count > 5 ? atol(arguments[5]) : 0;
    pthread_t thread[64];
    uint64_t cpu_ns[64];
    getpgrp(); /* a mark: instruction_budget.py counts what is done between two of them */
    uint64_t begin = clock_ns(CLOCK_MONOTONIC);
    for (int index = 0; index < threads && index < 64; index++) {
        pthread_create(&thread[index], NULL, run, &cpu_ns[index]);
    }
    uint64_t total_ns = 0;
    if (!threads) {
        run(&total_ns);
    }
    for (int index = 0; index < threads && index < 64; index++) {
        pthread_join(thread[index], NULL);
        total_ns += cpu_ns[index];
    }
    uint64_t wall_ns = clock_ns(CLOCK_MONOTONIC) - begin;
    getpgrp();
    double events = 2.0 * (double)pairs * (threads ? threads : 1);
    printf("cpu_ns_per_event=%.2f wall_ns=%llu resident_kib=%ld\n", (double)total_ns / events,
           (unsigned long long)wall_ns, peak_resident_kib());
    return 0;
}
