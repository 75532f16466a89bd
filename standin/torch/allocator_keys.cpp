// Lets torch_npu live beside a CUDA build of torch.
//
// Both register the same keys of the allocator configuration, and torch terminates the process at the second
// registration. This library is loaded into the global scope after torch and before torch_npu: torch_npu's
// registration then finds this empty set instead of torch's own, which already contains the keys.

#include <string>
#include <unordered_set>

namespace c10::CachingAllocator {
class AcceleratorAllocatorConfig {
public:
    static std::unordered_set<std::string>& getMutableKeys();
};

std::unordered_set<std::string>& AcceleratorAllocatorConfig::getMutableKeys()
{
    static std::unordered_set<std::string> keys;
    keys.clear();
    return keys;
}
}  // namespace c10::CachingAllocator
