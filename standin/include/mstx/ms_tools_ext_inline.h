/*
 * The inline half of ms_tools_ext.h: a context of function-pointer slots, hidden and weak so that one shared object
 * has exactly one, and functions that pass calls to whatever tool filled the slots. Each call is also reported to
 * libms_tools_ext.so of the stand-in device, if the program loads it, for the ground-truth log.
 */
#ifndef STANDIN_MSTX_MS_TOOLS_EXT_INLINE_H
#define STANDIN_MSTX_MS_TOOLS_EXT_INLINE_H

#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MSTX_CORE_ENTRIES 5
#define MSTX_DOMAIN_ENTRIES 6
#define MSTX_MEMORY_ENTRIES 6

typedef struct mstxSlots_t {
    int state; /* 0 no tool looked for, 1 looking, 2 settled */
    mstxFuncPointer core[MSTX_CORE_ENTRIES];
    mstxFuncPointer domain[MSTX_DOMAIN_ENTRIES];
    mstxFuncPointer memory[MSTX_MEMORY_ENTRIES];
    mstxFuncPointer *coreTable[MSTX_CORE_ENTRIES];
    mstxFuncPointer *domainTable[MSTX_DOMAIN_ENTRIES];
    mstxFuncPointer *memoryTable[MSTX_MEMORY_ENTRIES];
} mstxSlots_t;

__attribute__((weak, visibility("hidden"))) mstxSlots_t mstxSlots;

__attribute__((weak)) void standinMstxObserve(uint32_t kind, uint64_t address, uint64_t size, uint64_t flags,
                                              int32_t device, int32_t result, const char *message);

enum {
    MSTX_OBSERVE_MARK = 16,
    MSTX_OBSERVE_RANGE_START,
    MSTX_OBSERVE_RANGE_END,
    MSTX_OBSERVE_DOMAIN_CREATE,
    MSTX_OBSERVE_DOMAIN_DESTROY,
    MSTX_OBSERVE_DOMAIN_MARK,
    MSTX_OBSERVE_DOMAIN_RANGE_START,
    MSTX_OBSERVE_DOMAIN_RANGE_END,
    MSTX_OBSERVE_HEAP_REGISTER,
    MSTX_OBSERVE_HEAP_UNREGISTER,
    MSTX_OBSERVE_REGION_REGISTER,
    MSTX_OBSERVE_REGION_UNREGISTER
};

static inline void mstxObserve(uint32_t kind, uint64_t address, uint64_t flags, const char *message)
{
    if (standinMstxObserve != NULL) {
        standinMstxObserve(kind, address, 0, flags, -1, 0, message);
    }
}

static inline void mstxObserveRange(uint32_t kind, mstxDomainHandle_t domain, mstxMemVirtualRangeDesc_t const *range)
{
    if (standinMstxObserve != NULL && range != NULL) {
        standinMstxObserve(kind, (uint64_t)(uintptr_t)range->ptr, range->size, (uint64_t)(uintptr_t)domain,
                           (int32_t)range->deviceId, 0, NULL);
    }
}

static inline int mstxGetModuleFuncTable(mstxFuncModule module, mstxFuncTable *outTable, unsigned int *outSize)
{
    if (outTable == NULL || outSize == NULL) {
        return MSTX_FAIL;
    }
    switch (module) {
        case MSTX_API_MODULE_CORE:
            *outTable = mstxSlots.coreTable;
            *outSize = MSTX_CORE_ENTRIES;
            return MSTX_SUCCESS;
        case MSTX_API_MODULE_CORE_DOMAIN:
            *outTable = mstxSlots.domainTable;
            *outSize = MSTX_DOMAIN_ENTRIES;
            return MSTX_SUCCESS;
        case MSTX_API_MODULE_CORE_MEM:
            *outTable = mstxSlots.memoryTable;
            *outSize = MSTX_MEMORY_ENTRIES;
            return MSTX_SUCCESS;
        default:
            return MSTX_FAIL;
    }
}

static inline void mstxResetSlots(void)
{
    for (int i = 1; i < MSTX_CORE_ENTRIES; ++i) {
        mstxSlots.core[i] = NULL;
        mstxSlots.coreTable[i] = &mstxSlots.core[i];
    }
    for (int i = 1; i < MSTX_DOMAIN_ENTRIES; ++i) {
        mstxSlots.domain[i] = NULL;
        mstxSlots.domainTable[i] = &mstxSlots.domain[i];
    }
    for (int i = 1; i < MSTX_MEMORY_ENTRIES; ++i) {
        mstxSlots.memory[i] = NULL;
        mstxSlots.memoryTable[i] = &mstxSlots.memory[i];
    }
}

static inline void mstxFindTool(void)
{
    const char *path = getenv("MSTX_INJECTION_PATH");
    void *scope = path == NULL ? NULL : dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    mstxInitInjectionFunc initialize = NULL;

    mstxResetSlots();
    if (path == NULL || scope != NULL) {
        *(void **)(&initialize) = dlsym(scope, "InitInjectionMstx");
    }
    if (initialize != NULL && initialize(mstxGetModuleFuncTable) != MSTX_SUCCESS) {
        mstxResetSlots();
    }
}

static inline void mstxSettle(void)
{
    int fresh = 0;
    if (__atomic_load_n(&mstxSlots.state, __ATOMIC_ACQUIRE) == 2) {
        return;
    }
    if (__atomic_compare_exchange_n(&mstxSlots.state, &fresh, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        mstxFindTool();
        __atomic_store_n(&mstxSlots.state, 2, __ATOMIC_RELEASE);
    }
    while (__atomic_load_n(&mstxSlots.state, __ATOMIC_ACQUIRE) != 2) {
        sched_yield();
    }
}

static inline void mstxMarkA(const char *message, aclrtStream stream)
{
    mstxSettle();
    if (mstxSlots.core[1] != NULL) {
        ((void (*)(const char *, aclrtStream))mstxSlots.core[1])(message, stream);
    }
    mstxObserve(MSTX_OBSERVE_MARK, 0, (uint64_t)(uintptr_t)stream, message);
}

static inline mstxRangeId mstxRangeStartA(const char *message, aclrtStream stream)
{
    mstxRangeId id = 0;
    mstxSettle();
    if (mstxSlots.core[2] != NULL) {
        id = ((mstxRangeId(*)(const char *, aclrtStream))mstxSlots.core[2])(message, stream);
    }
    mstxObserve(MSTX_OBSERVE_RANGE_START, id, (uint64_t)(uintptr_t)stream, message);
    return id;
}

static inline void mstxRangeEnd(mstxRangeId id)
{
    mstxSettle();
    if (mstxSlots.core[3] != NULL) {
        ((void (*)(mstxRangeId))mstxSlots.core[3])(id);
    }
    mstxObserve(MSTX_OBSERVE_RANGE_END, id, 0, NULL);
}

static inline void mstxGetToolId(uint64_t *id)
{
    mstxSettle();
    if (mstxSlots.core[4] != NULL) {
        ((void (*)(uint64_t *))mstxSlots.core[4])(id);
    } else if (id != NULL) {
        *id = MSTX_TOOL_INVALID_ID;
    }
}

static inline mstxDomainHandle_t mstxDomainCreateA(const char *name)
{
    mstxDomainHandle_t domain = NULL;
    mstxSettle();
    if (mstxSlots.domain[1] != NULL) {
        domain = ((mstxDomainHandle_t(*)(const char *))mstxSlots.domain[1])(name);
    }
    mstxObserve(MSTX_OBSERVE_DOMAIN_CREATE, (uint64_t)(uintptr_t)domain, 0, name);
    return domain;
}

static inline void mstxDomainDestroy(mstxDomainHandle_t domain)
{
    mstxSettle();
    if (mstxSlots.domain[2] != NULL) {
        ((void (*)(mstxDomainHandle_t))mstxSlots.domain[2])(domain);
    }
    mstxObserve(MSTX_OBSERVE_DOMAIN_DESTROY, 0, (uint64_t)(uintptr_t)domain, NULL);
}

static inline void mstxDomainMarkA(mstxDomainHandle_t domain, const char *message, aclrtStream stream)
{
    mstxSettle();
    if (mstxSlots.domain[3] != NULL) {
        ((void (*)(mstxDomainHandle_t, const char *, aclrtStream))mstxSlots.domain[3])(domain, message, stream);
    }
    mstxObserve(MSTX_OBSERVE_DOMAIN_MARK, 0, (uint64_t)(uintptr_t)domain, message);
}

static inline mstxRangeId mstxDomainRangeStartA(mstxDomainHandle_t domain, const char *message, aclrtStream stream)
{
    mstxRangeId id = 0;
    mstxSettle();
    if (mstxSlots.domain[4] != NULL) {
        id = ((mstxRangeId(*)(mstxDomainHandle_t, const char *, aclrtStream))mstxSlots.domain[4])(domain, message,
                                                                                              stream);
    }
    mstxObserve(MSTX_OBSERVE_DOMAIN_RANGE_START, id, (uint64_t)(uintptr_t)domain, message);
    return id;
}

static inline void mstxDomainRangeEnd(mstxDomainHandle_t domain, mstxRangeId id)
{
    mstxSettle();
    if (mstxSlots.domain[5] != NULL) {
        ((void (*)(mstxDomainHandle_t, mstxRangeId))mstxSlots.domain[5])(domain, id);
    }
    mstxObserve(MSTX_OBSERVE_DOMAIN_RANGE_END, id, (uint64_t)(uintptr_t)domain, NULL);
}

static inline mstxMemHeapHandle_t mstxMemHeapRegister(mstxDomainHandle_t domain, mstxMemHeapDesc_t const *desc)
{
    mstxMemHeapHandle_t heap = NULL;
    mstxSettle();
    if (mstxSlots.memory[1] != NULL) {
        heap = ((mstxMemHeapHandle_t(*)(mstxDomainHandle_t, mstxMemHeapDesc_t const *))mstxSlots.memory[1])(domain,
                                                                                                        desc);
    }
    if (desc != NULL) {
        mstxObserveRange(MSTX_OBSERVE_HEAP_REGISTER, domain,
                         (mstxMemVirtualRangeDesc_t const *)desc->typeSpecificDesc);
    }
    return heap;
}

static inline void mstxMemHeapUnregister(mstxDomainHandle_t domain, mstxMemHeapHandle_t heap)
{
    mstxSettle();
    if (mstxSlots.memory[2] != NULL) {
        ((void (*)(mstxDomainHandle_t, mstxMemHeapHandle_t))mstxSlots.memory[2])(domain, heap);
    }
    mstxObserve(MSTX_OBSERVE_HEAP_UNREGISTER, (uint64_t)(uintptr_t)heap, (uint64_t)(uintptr_t)domain, NULL);
}

static inline void mstxMemRegionsRegister(mstxDomainHandle_t domain, mstxMemRegionsRegisterBatch_t const *desc)
{
    mstxSettle();
    if (mstxSlots.memory[3] != NULL) {
        ((void (*)(mstxDomainHandle_t, mstxMemRegionsRegisterBatch_t const *))mstxSlots.memory[3])(domain, desc);
    }
    if (desc != NULL && desc->regionDescArray != NULL) {
        mstxMemVirtualRangeDesc_t const *ranges = (mstxMemVirtualRangeDesc_t const *)desc->regionDescArray;
        for (size_t i = 0; i < desc->regionCount; ++i) {
            mstxObserveRange(MSTX_OBSERVE_REGION_REGISTER, domain, &ranges[i]);
        }
    }
}

static inline void mstxMemRegionsUnregister(mstxDomainHandle_t domain, mstxMemRegionsUnregisterBatch_t const *desc)
{
    mstxSettle();
    if (mstxSlots.memory[4] != NULL) {
        ((void (*)(mstxDomainHandle_t, mstxMemRegionsUnregisterBatch_t const *))mstxSlots.memory[4])(domain, desc);
    }
    if (standinMstxObserve != NULL && desc != NULL && desc->refArray != NULL) {
        for (size_t i = 0; i < desc->refCount; ++i) {
            standinMstxObserve(MSTX_OBSERVE_REGION_UNREGISTER, (uint64_t)(uintptr_t)desc->refArray[i].pointer, 0,
                               (uint64_t)(uintptr_t)domain, -1, (int32_t)desc->refArray[i].refType, NULL);
        }
    }
}

#ifdef __cplusplus
}
#endif

#endif
