/* The driver's memory functions on the stand-in device, for programs that test hooks of them. */
#ifndef STANDIN_ASCEND_HAL_H
#define STANDIN_ASCEND_HAL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int drvError_t;
typedef struct drv_mem_handle drv_mem_handle_t;

enum {
    DRV_ERROR_NONE = 0,
    DRV_ERROR_INVALID_DEVICE = 2,
    DRV_ERROR_INVALID_VALUE = 3,
    DRV_ERROR_INVALID_HANDLE = 4,
    DRV_ERROR_INVALID_MALLOC_TYPE = 5,
    DRV_ERROR_OUT_OF_MEMORY = 6,
    DRV_ERROR_INNER_ERR = 7
};

/* Flags of halMemAlloc: device in bits 0-9, memory type in bits 10-13, module in bits 56-63. */
#define MEM_TYPE_SVM (UINT64_C(0) << 10)
#define MEM_TYPE_DEVICE (UINT64_C(1) << 10)
#define MEM_TYPE_HOST (UINT64_C(2) << 10)
#define MEM_TYPE_DVPP (UINT64_C(3) << 10)
#define MEM_PAGE_HUGE (UINT64_C(1) << 17)
#define MEM_PAGE_GIANT (UINT64_C(1) << 31)
#define MEM_MODULE(id) ((uint64_t)(id) << 56)

struct drv_mem_prop {
    uint32_t side; /* 0 host, 1 device */
    uint32_t devid;
    uint32_t module_id;
    uint32_t pg_type; /* 0 normal, 1 huge, 2 giant */
    uint32_t mem_type;
    uint64_t reserve;
};

drvError_t halMemAlloc(void **pp, uint64_t size, uint64_t flag);
drvError_t halMemFree(void *pp);
drvError_t halMemCreate(drv_mem_handle_t **handle, size_t size, const struct drv_mem_prop *prop, uint64_t flag);
drvError_t halMemRelease(drv_mem_handle_t *handle);
drvError_t halMemAddressReserve(void **ptr, size_t size, size_t alignment, void *addr, uint64_t flag);
drvError_t halMemAddressFree(void *ptr);
drvError_t halMemMap(void *ptr, size_t size, size_t offset, drv_mem_handle_t *handle, uint64_t flag);
drvError_t halMemUnmap(void *ptr);

drvError_t halMemAllocInner(void **pp, uint64_t size, uint64_t flag);
drvError_t halMemFreeInner(void *pp);

#ifdef __cplusplus
}
#endif

#endif
