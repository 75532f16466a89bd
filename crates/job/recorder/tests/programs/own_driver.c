/* A library of the user that stands before the driver: it counts, and refuses what is beyond a quota. */
#define _GNU_SOURCE
#include <ascend_hal.h>
#include <dlfcn.h>
#include <stdio.h>

static long calls, frees;
static uint64_t used_bytes;

drvError_t halMemAlloc(void **address, uint64_t size_bytes, uint64_t flag) {
    static drvError_t (*real)(void **, uint64_t, uint64_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "halMemAlloc");
    calls++;
    if (used_bytes + size_bytes > 1000) return DRV_ERROR_OUT_OF_MEMORY;
    used_bytes += size_bytes;
    return real(address, size_bytes, flag);
}

drvError_t halMemFree(void *address) {
    static drvError_t (*real)(void *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "halMemFree");
    frees++;
    return real(address);
}

__attribute__((destructor)) static void tell(void) {
    fprintf(stderr, "own driver: %ld calls, %ld frees, %lu bytes\n", calls, frees, used_bytes);
}
