/* A library that uses the driver and is loaded and unloaded at run time. */
#include <ascend_hal.h>

int plugin_use(uint64_t size) {
    void *block = 0;
    int allocated = halMemAlloc(&block, size, MEM_TYPE_DEVICE);
    return allocated * 10 + halMemFree(block);
}
