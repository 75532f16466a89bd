/*
 * libascend_hal.so for measurements: the cheapest driver there can be, so that what is measured is the recorder.
 * Addresses look like a device's: a window of blocks that are handed out in turn by each thread.
 */
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define WINDOW 4096

static _Thread_local uint64_t next_block;
static int next_thread;
static _Thread_local uint64_t thread_base;

EXPORT int halMemAlloc(void **address, uint64_t size, uint64_t flag)
{
    (void)size;
    (void)flag;
    if (!thread_base) {
        thread_base = 0x12c000000000 + (uint64_t)__atomic_fetch_add(&next_thread, 1, __ATOMIC_RELAXED) * 0x400000000;
    }
    next_block = next_block * 5 + 1;
    *address = (void *)(thread_base + (next_block % WINDOW) * 0x200000);
    return 0;
}

EXPORT int halMemFree(void *address)
{
    (void)address;
    return 0;
}
