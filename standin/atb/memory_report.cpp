#include "runner.h"

#include "mstx/ms_tools_ext.h"

namespace atb {
namespace {
thread_local bool isEnabled = true;

mstxDomainHandle_t Domain()
{
    static mstxDomainHandle_t domain = mstxDomainCreateA("atb");
    return domain;
}

int32_t CurrentDevice()
{
    int32_t device = -1;
    return aclrtGetDevice(&device) == ACL_SUCCESS ? device : -1;
}
} // namespace

bool MemoryReport::IsEnabled()
{
    return isEnabled;
}

MemoryReport::MemoryReport(void *workspace, uint64_t size)
{
    mstxMemVirtualRangeDesc_t range = {};
    range.deviceId = static_cast<uint32_t>(CurrentDevice());
    range.ptr = workspace;
    range.size = size;
    mstxMemHeapDesc_t description = {};
    description.typeSpecificDesc = &range;
    heap_ = mstxMemHeapRegister(Domain(), &description);
    isEnabled = heap_ != nullptr;
}

MemoryReport::~MemoryReport()
{
    if (heap_ != nullptr) {
        mstxMemHeapUnregister(Domain(), static_cast<mstxMemHeapHandle_t>(heap_));
    }
}

std::vector<void *> MemoryReport::Register(const std::vector<std::pair<void *, uint64_t>> &regions)
{
    std::vector<mstxMemVirtualRangeDesc_t> ranges;
    for (const auto &region : regions) {
        mstxMemVirtualRangeDesc_t range = {};
        range.deviceId = static_cast<uint32_t>(CurrentDevice());
        range.ptr = region.first;
        range.size = region.second;
        ranges.push_back(range);
    }
    std::vector<mstxMemRegionHandle_t> handles(ranges.size());
    mstxMemRegionsRegisterBatch_t batch = {};
    batch.heap = static_cast<mstxMemHeapHandle_t>(heap_);
    batch.regionCount = ranges.size();
    batch.regionDescArray = ranges.data();
    batch.regionHandleArrayOut = handles.data();
    mstxMemRegionsRegister(Domain(), &batch);
    return std::vector<void *>(handles.begin(), handles.end());
}

void MemoryReport::Unregister(const std::vector<void *> &handles)
{
    std::vector<mstxMemRegionRef_t> references(handles.size());
    for (std::size_t index = 0; index < handles.size(); ++index) {
        references[index].refType = MSTX_MEM_REGION_REF_TYPE_HANDLE;
        references[index].handle = static_cast<mstxMemRegionHandle_t>(handles[index]);
    }
    mstxMemRegionsUnregisterBatch_t batch = {};
    batch.refCount = references.size();
    batch.refArray = references.data();
    mstxMemRegionsUnregister(Domain(), &batch);
}
} // namespace atb
