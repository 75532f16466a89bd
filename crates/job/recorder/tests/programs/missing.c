/* Calls functions that no library of this process has; only a preloaded hook makes them callable. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define ABSENT __attribute__((weak))
ABSENT int halMemAlloc(void **block, uint64_t size, uint64_t flag);
ABSENT int halMemFree(void *block);
ABSENT int halMemCreate(void **handle, size_t size, const void *properties, uint64_t flag);
ABSENT int halMemRelease(void *handle);
ABSENT int aclInit(const char *configuration);
ABSENT int aclFinalize(void);
ABSENT int aclrtSetDevice(int32_t device);
ABSENT int aclrtHostRegisterV2(void *memory, uint64_t size, uint32_t flag);
ABSENT int aclrtHostUnregister(void *memory);

int main(void) {
    void *block = NULL;
    errno = 11;
    if (!halMemAlloc) {
        puts("absent");
        return 0;
    }
    printf("%x %x %x %x\n", halMemAlloc(&block, 1, 0), halMemFree(block), halMemCreate(&block, 1, NULL, 0), halMemRelease(block));
    printf("%d %d %d %d\n", aclInit(NULL), aclFinalize(), aclrtSetDevice(0), aclrtHostUnregister(block));
    printf("%s, errno %d\n", aclrtHostRegisterV2 ? "optional function seems present" : "optional function is absent", errno);
    return 0;
}
