/*
 * A small training loop with a planted leak, for `make demo`.
 *
 * It has what a framework has: a pool that takes memory from the device in large segments and hands it out in
 * blocks, telling tools about both through mstx, and steps marked with ranges named "step start". The bug is the
 * one everybody writes once: remember_loss() keeps a device tensor of every step in a list.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "acl/acl.h"
#include "mstx/ms_tools_ext.h"

#define MEBIBYTE ((size_t)1 << 20)
#define SEGMENT_BYTES (64 * MEBIBYTE)
#define STEPS 8
#define LAYERS 6

/* The pool: blocks are cut from segments and go back to a free list of their size. */
struct block {
    void *address;
    size_t size;
    struct block *next;
};

static mstxDomainHandle_t pool_domain;
static struct block *free_blocks;
static char *segment;
static size_t segment_left;
static size_t reserved_bytes;

static void tell_reserved(void *address)
{
    mstxMemVirtualRangeDesc_t range = {0, address, (int64_t)reserved_bytes};
    mstxMemHeapDesc_t heap = {MSTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR, MSTX_MEM_TYPE_VIRTUAL_ADDRESS, &range};
    mstxMemHeapRegister(pool_domain, &heap);
}

static struct block *pool_allocate(size_t size)
{
    struct block *block = NULL;
    for (struct block **place = &free_blocks; *place; place = &(*place)->next) {
        if ((*place)->size == size) {
            block = *place;
            *place = block->next;
            break;
        }
    }
    if (!block) {
        if (segment_left < size) {
            void *memory = NULL;
            aclError error = aclrtMalloc(&memory, SEGMENT_BYTES, ACL_MEM_MALLOC_HUGE_FIRST);
            if (error != ACL_SUCCESS) {
                fprintf(stderr, "out of device memory (%d)\n", (int)error);
                exit(1);
            }
            segment = memory;
            segment_left = SEGMENT_BYTES;
            reserved_bytes += SEGMENT_BYTES;
        }
        block = malloc(sizeof *block);
        block->address = segment;
        block->size = size;
        segment += size;
        segment_left -= size;
    }
    tell_reserved(block->address);
    mstxMemVirtualRangeDesc_t range = {0, block->address, (int64_t)size};
    mstxMemRegionsRegisterBatch_t batch = {NULL, MSTX_MEM_TYPE_VIRTUAL_ADDRESS, 1, &range, NULL};
    mstxMemRegionsRegister(pool_domain, &batch);
    return block;
}

static void pool_free(struct block *block)
{
    tell_reserved(block->address);
    mstxMemRegionRef_t reference = {.refType = MSTX_MEM_REGION_REF_TYPE_POINTER, .pointer = block->address};
    mstxMemRegionsUnregisterBatch_t batch = {1, &reference};
    mstxMemRegionsUnregister(pool_domain, &batch);
    block->next = free_blocks;
    free_blocks = block;
}

/* The model. */
static struct block *weights[LAYERS];
static struct block *activations[LAYERS];
static struct block *history[STEPS];

static void build_model(void)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        weights[layer] = pool_allocate(4 * MEBIBYTE);
    }
}

static void forward(void)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        activations[layer] = pool_allocate(2 * MEBIBYTE);
    }
}

static void backward(void)
{
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
        struct block *gradient = pool_allocate(4 * MEBIBYTE);
        pool_free(activations[layer]);
        pool_free(gradient);
    }
}

/* The leak: a device tensor of every step stays alive. */
static void remember_loss(int step)
{
    history[step] = pool_allocate(3 * MEBIBYTE);
}

int main(void)
{
    if (aclInit(NULL) != ACL_SUCCESS || aclrtSetDevice(0) != ACL_SUCCESS) {
        fprintf(stderr, "no device\n");
        return 1;
    }
    pool_domain = mstxDomainCreateA("ptaCaching");
    build_model();
    mstxMarkA("model built", NULL);
    for (int step = 0; step < STEPS; step++) {
        uint64_t range = mstxRangeStartA("step start", NULL);
        forward();
        backward();
        remember_loss(step);
        mstxRangeEnd(range);
    }
    printf("trained %d steps, %zu MiB reserved\n", STEPS, reserved_bytes / MEBIBYTE);
    aclrtResetDevice(0);
    aclFinalize();
    return 0;
}
