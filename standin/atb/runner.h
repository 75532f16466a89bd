// What operations are executed by: the classes, functions and layouts inside of libatb.so that tools rely on.
//
// Functions that tools replace are called through the dynamic symbol table, as in ATB. Some older and broken libraries
// can be built from the same source: see ../README.md.
#ifndef STANDIN_ATB_RUNNER_H
#define STANDIN_ATB_RUNNER_H

#include <cstddef>
#include <functional>

#include "atb/operation.h"

namespace Mki {
// A vector of at most 48 elements.
template <class T> struct SVector {
    T storage[49] = {};
    std::size_t count = 0;

    void push_back(const T &value)
    {
        if (count < 48) {
            storage[count++] = value;
        }
    }
};

struct TensorDesc {
    int32_t dtype = -1;
    int32_t format = -1;
    SVector<int64_t> dims;
    std::vector<int64_t> strides;
    int64_t offset = 0;
};

struct Tensor {
    TensorDesc desc;
    void *data = nullptr;
    std::size_t dataSize = 0;
    void *hostData = nullptr;
};

// The tensors of one kernel.
class LaunchParam {
public:
#ifdef STANDIN_ATB_WITHOUT_TENSOR_LISTS
#define GetInTensors InTensors
#define GetOutTensors OutTensors
#endif
    SVector<Tensor> &GetInTensors();
    SVector<Tensor> &GetOutTensors();

private:
    void *param_ = nullptr;
    SVector<Tensor> inTensors_;
    SVector<Tensor> outTensors_;
};

static_assert(sizeof(Tensor) == 464 && offsetof(Tensor, data) == 440, "layout of Mki");
static_assert(sizeof(LaunchParam) == 45496, "layout of Mki");
} // namespace Mki

namespace atb {
#ifdef STANDIN_ATB_HIDDEN
#define STANDIN_ATB_SEEN __attribute__((visibility("hidden")))
#else
#define STANDIN_ATB_SEEN __attribute__((visibility("default")))
#endif

// What tells tools about kernels.
#ifdef STANDIN_ATB_HIDDEN_KERNELS
#define STANDIN_ATB_KERNELS_SEEN __attribute__((visibility("hidden")))
#else
#define STANDIN_ATB_KERNELS_SEEN STANDIN_ATB_SEEN
#endif

class MemoryReport;

// What a runner works on.
struct RunnerVariantPack {
#ifdef STANDIN_ATB_OTHER_LAYOUT
    uint64_t unexpected[3] = {~0ull, ~0ull, ~0ull};
#endif
    SVector<Tensor> inTensors;
    SVector<Tensor> outTensors;
    SVector<bool> isInTensorCanFree;
    SVector<bool> isOutTensorNeedMalloc;
    uint8_t *hostTilingBuffer = nullptr;
    uint8_t *tilingBuffer = nullptr;
    uint64_t tilingBufferSize = 0;
    uint8_t *workspaceBuffer = nullptr;
    uint64_t workspaceBufferSize = 0;
    uint8_t *intermediateBuffer = nullptr;
    uint64_t intermediateBufferSize = 0;
#ifndef STANDIN_ATB_OLD_CONTEXT
    uint8_t *argsDeviceBuffer = nullptr;
    uint8_t *argsHostBuffer = nullptr;
#endif
    Context *context = nullptr;
#ifndef STANDIN_ATB_OLD_CONTEXT
    MemoryReport *mstxMemRegister = nullptr;
#endif
};

#if !defined(STANDIN_ATB_OTHER_LAYOUT) && !defined(STANDIN_ATB_OLD_CONTEXT)
static_assert(sizeof(RunnerVariantPack) == 13848 && offsetof(RunnerVariantPack, workspaceBuffer) == 13784, "layout");
static_assert(offsetof(RunnerVariantPack, intermediateBufferSize) == 13808, "layout of ATB");
static_assert(offsetof(RunnerVariantPack, context) == 13832, "layout of ATB");
#endif

// Questions that tools answer; by itself the library wants nothing saved.
class STANDIN_ATB_KERNELS_SEEN Probe {
public:
    static bool IsTensorNeedSave(const std::vector<int64_t> &ids, const std::string &opType);
    static bool IsSaveTensorDesc();
    static bool IsExecuteCountInRange(const uint64_t executeCount);
    static bool IsSaveTensorBefore();
    static bool IsSaveTensorAfter();
    static bool IsSaveTensorInSpecificDir(const std::string &tensorDir);
};

// Saves tensors into files of a directory.
class STANDIN_ATB_KERNELS_SEEN StoreUtil {
public:
    static void SaveLaunchParam(aclrtStream stream, const Mki::LaunchParam &launchParam, const std::string &dirPath);
    static void SaveVariantPack(aclrtStream stream, const RunnerVariantPack &pack, const std::string &dirPath);
};

class STANDIN_ATB_SEEN Runner {
public:
    explicit Runner(const std::string &operationName);
    virtual ~Runner() = default;
    Status Execute(RunnerVariantPack &runnerVariantPack);
    aclrtStream GetExecuteStream(Context *context) const;
    virtual void SetSaveTensorDir(const std::string &tensorDir);
    // The place of this runner among all, whoever asks for it.
    virtual void SetPath(const std::string &path);
    void SetStreamId(uint32_t streamId);
    // Whether tools want to see tensors of this operation.
    virtual void PrepareSaving(int64_t id);

#ifdef STANDIN_ATB_WITHOUT_GETTERS
    std::string OperationName() const { return operationName_; }
    std::string SaveTensorDir() const { return tensorDir_; }
#else
    std::string GetOperationName() const;
    std::string GetSaveTensorDir() const;
    std::string OperationName() const { return GetOperationName(); }
    std::string SaveTensorDir() const { return GetSaveTensorDir(); }
#endif
    bool IsSaveTensor() const;

protected:
    virtual Status ExecuteImpl(RunnerVariantPack &runnerVariantPack) = 0;

    std::string path_;
    std::size_t executeCount_ = 0;
    bool saveTensorFlag_ = false;

private:
    std::string operationName_;
    std::string tensorDir_;
    uint32_t streamId_ = 0;
};

// Runs the kernels of one operation.
class OpsRunner : public Runner {
public:
    using Work = std::function<void(OpsRunner &, RunnerVariantPack &)>;
    OpsRunner(const std::string &operationName, Work work);
    // Launches a kernel on the operation's stream; what it reads and writes is told to tools. Tensors inside of the
    // workspace are reported as memory of ATB while it is launched.
    void Launch(const char *kernelName, const std::vector<Tensor> &inputs, const std::vector<Tensor> &outputs,
                std::function<void()> kernel);

protected:
    Status ExecuteImpl(RunnerVariantPack &runnerVariantPack) override;

private:
    Work work_;
    RunnerVariantPack *pack_ = nullptr;
    uint64_t kernelCount_ = 0;
    Status status_ = NO_ERROR;
};

// Reports memory of operations over mstx, as long as a tool listens.
class MemoryReport {
public:
    static bool IsEnabled();
    MemoryReport(void *workspace, uint64_t size);
    ~MemoryReport();
    bool HasHeap() const { return heap_ != nullptr; }
    // Reports these tensors; gives what ends the report.
    std::vector<void *> Register(const std::vector<std::pair<void *, uint64_t>> &regions);
    void Unregister(const std::vector<void *> &handles);

private:
    void *heap_ = nullptr;
};
} // namespace atb

#endif
