#include "runner.h"

#include <cinttypes>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "standin_kernels.h"
#include "truth.h"

namespace Mki {
SVector<Tensor> &LaunchParam::GetInTensors()
{
    return inTensors_;
}

SVector<Tensor> &LaunchParam::GetOutTensors()
{
    return outTensors_;
}
} // namespace Mki

namespace atb {
bool Probe::IsTensorNeedSave(const std::vector<int64_t> &, const std::string &)
{
    return false;
}

bool Probe::IsSaveTensorDesc()
{
    return false;
}

bool Probe::IsExecuteCountInRange(const uint64_t)
{
    return false;
}

bool Probe::IsSaveTensorBefore()
{
    return false;
}

bool Probe::IsSaveTensorAfter()
{
    return false;
}

bool Probe::IsSaveTensorInSpecificDir(const std::string &)
{
    return true;
}

// Saving is a side effect that shows: tests demand that nobody causes it by looking on.
void StoreUtil::SaveLaunchParam(aclrtStream, const Mki::LaunchParam &, const std::string &dirPath)
{
    standin::Tell("saved %s", dirPath.c_str());
}

void StoreUtil::SaveVariantPack(aclrtStream, const RunnerVariantPack &, const std::string &dirPath)
{
    standin::Tell("saved %s", dirPath.c_str());
}

Runner::Runner(const std::string &operationName) : operationName_(operationName) {}

#ifndef STANDIN_ATB_WITHOUT_GETTERS
std::string Runner::GetOperationName() const
{
    return operationName_;
}

std::string Runner::GetSaveTensorDir() const
{
    return tensorDir_;
}
#endif

void Runner::SetSaveTensorDir(const std::string &tensorDir)
{
    tensorDir_ = tensorDir;
}

void Runner::SetPath(const std::string &path)
{
    path_ = path;
}

void Runner::SetStreamId(uint32_t streamId)
{
    streamId_ = streamId;
}

void Runner::PrepareSaving(int64_t id)
{
    saveTensorFlag_ = Probe::IsTensorNeedSave({id}, OperationName());
}

bool Runner::IsSaveTensor() const
{
    return Probe::IsExecuteCountInRange(executeCount_) && saveTensorFlag_;
}

aclrtStream Runner::GetExecuteStream(Context *context) const
{
    std::vector<aclrtStream> streams = context->GetExecuteStreams();
    return streamId_ < streams.size() ? streams[streamId_] : context->GetExecuteStream();
}

namespace {
std::string Shape(const Tensor &tensor)
{
    std::string text = "[";
    for (uint64_t index = 0; index < tensor.desc.shape.dimNum; ++index) {
        text += std::to_string(tensor.desc.shape.dims[index]) + ",";
    }
    return text + "]";
}

void TellTensors(const char *what, const char *name, const Tensor *begin, const Tensor *end)
{
    for (const Tensor *tensor = begin; tensor != end; ++tensor) {
        if (tensor->deviceData != nullptr) {
            standin::Tell("access %s %s %p %" PRIu64 " %d %d %s", what, name, tensor->deviceData, tensor->dataSize,
                          tensor->desc.dtype, tensor->desc.format, Shape(*tensor).c_str());
        }
    }
}

int CurrentDevice()
{
    int32_t device = -1;
    return aclrtGetDevice(&device) == ACL_SUCCESS ? device : -1;
}

// Every n-th execution fails if somebody wants that.
bool Fails()
{
    static const char *setting = getenv("STANDIN_ATB_FAIL_EVERY");
    static const unsigned long every = setting != nullptr ? strtoul(setting, nullptr, 10) : 0;
    static thread_local unsigned long executions = 0;
    return every != 0 && ++executions % every == 0;
}
} // namespace

Status Runner::Execute(RunnerVariantPack &pack)
{
    const uint64_t workspaceSize = pack.workspaceBufferSize + pack.intermediateBufferSize;
    if (standin::TruthIsWanted()) {
        standin::Tell("operator start %d %s %s %p %" PRIu64, CurrentDevice(), operationName_.c_str(), path_.c_str(),
                      static_cast<void *>(pack.workspaceBuffer), workspaceSize);
        TellTensors("UNKNOWN", operationName_.c_str(), pack.inTensors.begin(), pack.inTensors.end());
        TellTensors("WRITE", operationName_.c_str(), pack.outTensors.begin(), pack.outTensors.end());
    }
    if (IsSaveTensor() && Probe::IsSaveTensorBefore()) {
        StoreUtil::SaveVariantPack(GetExecuteStream(pack.context), pack, SaveTensorDir() + "/before");
    }
    Status status = Fails() ? static_cast<Status>(ERROR_RT_FAIL) : ExecuteImpl(pack);
    if (IsSaveTensor() && Probe::IsSaveTensorAfter()) {
        StoreUtil::SaveVariantPack(GetExecuteStream(pack.context), pack, SaveTensorDir() + "/after");
    }
    executeCount_++;
    if (standin::TruthIsWanted()) {
        standin::Tell("operator end %d %s %s %d", CurrentDevice(), operationName_.c_str(), path_.c_str(), status);
    }
    return status;
}

OpsRunner::OpsRunner(const std::string &operationName, Work work) : Runner(operationName), work_(std::move(work)) {}

Status OpsRunner::ExecuteImpl(RunnerVariantPack &pack)
{
    pack_ = &pack;
    kernelCount_ = 0;
    status_ = NO_ERROR;
    work_(*this, pack);
    pack_ = nullptr;
    return status_;
}

namespace {
Mki::LaunchParam ParamOf(const std::vector<Tensor> &inputs, const std::vector<Tensor> &outputs)
{
    Mki::LaunchParam param;
    auto fill = [](Mki::SVector<Mki::Tensor> &into, const std::vector<Tensor> &tensors) {
        for (const Tensor &tensor : tensors) {
            Mki::Tensor converted;
            converted.desc.dtype = tensor.desc.dtype;
            converted.desc.format = tensor.desc.format;
            for (uint64_t index = 0; index < tensor.desc.shape.dimNum; ++index) {
                converted.desc.dims.push_back(tensor.desc.shape.dims[index]);
            }
            converted.data = tensor.deviceData;
            converted.hostData = tensor.hostData;
            converted.dataSize = tensor.dataSize;
            into.push_back(converted);
        }
    };
    fill(param.GetInTensors(), inputs);
    fill(param.GetOutTensors(), outputs);
    return param;
}

void *KernelNamed(const std::string &name)
{
    static std::mutex mutex;
    static std::map<std::string, void *> kernels;
    std::lock_guard<std::mutex> lock(mutex);
    void *&kernel = kernels[name];
    if (kernel == nullptr) {
        kernel = standinKernel(name.c_str(), 0);
    }
    return kernel;
}

void RunKernel(void *argument)
{
    std::unique_ptr<std::function<void()>> kernel(static_cast<std::function<void()> *>(argument));
    (*kernel)();
}

uint64_t RoundUp(uint64_t size)
{
    return (size + 511) / 512 * 512;
}
} // namespace

void OpsRunner::Launch(const char *kernelName, const std::vector<Tensor> &inputs, const std::vector<Tensor> &outputs,
                       std::function<void()> kernel)
{
    const std::string node = std::to_string(kernelCount_++) + "_" + kernelName;
    const std::string path = path_ + "/" + node;
    aclrtStream stream = GetExecuteStream(pack_->context);
    std::vector<void *> handles;
#ifndef STANDIN_ATB_OLD_CONTEXT
    if (pack_->mstxMemRegister != nullptr) {
        std::vector<std::pair<void *, uint64_t>> regions;
        if (pack_->workspaceBufferSize != 0) {
            regions.emplace_back(pack_->workspaceBuffer, RoundUp(pack_->workspaceBufferSize));
        }
        for (const auto *tensors : {&inputs, &outputs}) {
            for (const Tensor &tensor : *tensors) {
                auto *data = static_cast<uint8_t *>(tensor.deviceData);
                if (data >= pack_->intermediateBuffer && pack_->intermediateBuffer != nullptr &&
                    data < pack_->intermediateBuffer + pack_->intermediateBufferSize) {
                    regions.emplace_back(data, RoundUp(tensor.dataSize));
                }
            }
        }
        if (!regions.empty()) {
            handles = pack_->mstxMemRegister->Register(regions);
        }
    }
#endif
    auto save = [&](bool isWanted, const char *moment) {
        if (isWanted) {
            const Mki::LaunchParam param = ParamOf(inputs, outputs);
            StoreUtil::SaveLaunchParam(stream, param, SaveTensorDir() + "/" + node + moment);
        }
    };
    auto tell = [&](const char *moment) {
        if (standin::TruthIsWanted()) {
            standin::Tell("kernel %s %d %s %s", moment, CurrentDevice(), node.c_str(), path.c_str());
            if (moment[0] == 's') {
                TellTensors("UNKNOWN", node.c_str(), inputs.data(), inputs.data() + inputs.size());
                TellTensors("WRITE", node.c_str(), outputs.data(), outputs.data() + outputs.size());
            }
        }
    };
    tell("start");
    save(saveTensorFlag_ && Probe::IsExecuteCountInRange(executeCount_) && Probe::IsSaveTensorBefore(), "/before");
    auto *work = new std::function<void()>(std::move(kernel));
    standin_arguments arguments = {RunKernel, work};
    standin_args_ex launched = {&arguments, nullptr, sizeof(arguments), {0, 0, 0}};
    if (rtKernelLaunchWithHandleV2(KernelNamed(kernelName), 0, 1, &launched, nullptr, stream, nullptr) != 0) {
        delete work;
        status_ = ERROR_RT_FAIL;
    }
    save(saveTensorFlag_ && Probe::IsExecuteCountInRange(executeCount_) && Probe::IsSaveTensorAfter(), "/after");
    tell("end");
#ifndef STANDIN_ATB_OLD_CONTEXT
    if (!handles.empty()) {
        pack_->mstxMemRegister->Unregister(handles);
    }
#endif
}
} // namespace atb
