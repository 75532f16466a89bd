#include "operation.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include "atb/utils.h"

namespace atb {
namespace {
class PlainContext : public Context {
public:
    Status SetExecuteStream(aclrtStream stream) override
    {
        streams_ = {stream};
        return NO_ERROR;
    }
    aclrtStream GetExecuteStream() const override { return streams_.empty() ? nullptr : streams_[0]; }
    Status SetAsyncTilingCopyStatus(bool enable) override
    {
        isAsync_ = enable;
        return NO_ERROR;
    }
    bool GetAsyncTilingCopyStatus() const override { return isAsync_; }
    Status SetExecuteStreams(const std::vector<aclrtStream> &streams) override
    {
        streams_ = streams;
        return NO_ERROR;
    }
    std::vector<aclrtStream> GetExecuteStreams() override { return streams_; }
    Status SetExecuteType(ExecuteType type) override
    {
        type_ = type;
        return NO_ERROR;
    }
    ExecuteType GetExecuteType() override { return type_; }
    Status SetLaunchMode(LaunchMode mode) override
    {
        mode_ = mode;
        return NO_ERROR;
    }
    LaunchMode GetLaunchMode() override { return mode_; }

private:
    std::vector<aclrtStream> streams_;
    bool isAsync_ = false;
    ExecuteType type_ = EXECUTE_NORMAL;
    LaunchMode mode_ = KERNEL_LAUNCH_MODE;
};

std::atomic<int64_t> operationCount{0};
} // namespace

bool PathsAreNamed()
{
    static const char *setting = getenv("STANDIN_ATB_PATHS");
    return setting != nullptr && strcmp(setting, "named") == 0;
}

uint64_t Aligned(uint64_t size)
{
    return (size + 511) / 512 * 512;
}

OperationBase::OperationBase(const std::string &name) : name_(name), id_(operationCount++) {}

std::string OperationBase::GetName() const
{
    return name_;
}

std::string OperationBase::Path() const
{
    int32_t device = -1;
    aclrtGetDevice(&device);
    std::string path = std::to_string(device) + "_" + std::to_string(getpid()) + "/";
    if (PathsAreNamed()) {
        return path + "token" + std::to_string(executeCount_) + "/" + name_;
    }
    return path + std::to_string(executeCount_) + "/" + std::to_string(id_) + "_" + name_;
}

Status OperationBase::Setup(const VariantPack &pack, uint64_t &workspaceSize, Context *context)
{
    workspaceSize = 0;
    if (context == nullptr) {
        return ERROR_INVALID_CONTEXT_ADDR;
    }
    if (pack.inTensors.size() != GetInputNum() || pack.outTensors.size() != GetOutputNum()) {
        return ERROR_INVALID_IN_TENSOR_NUM;
    }
    needs_ = Needs();
    Status status = Plan(pack, needs_);
    if (status != NO_ERROR) {
        return status;
    }
    runner_->SetStreamId(streamId);
    runner_->PrepareSaving(id_);
    workspaceSize = needs_.workspaceBytes + needs_.intermediateBytes;
    isSetUp_ = true;
    return NO_ERROR;
}

Status OperationBase::Execute(const VariantPack &pack, uint8_t *workspace, uint64_t workspaceSize, Context *context)
{
    if (context == nullptr || context->GetExecuteStreams().empty()) {
        return ERROR_INVALID_CONTEXT_ADDR;
    }
    if (!isSetUp_) {
        return ERROR_INTERNAL_ERROR;
    }
    const uint64_t needed = needs_.workspaceBytes + needs_.intermediateBytes;
    if (workspaceSize < needed) {
        return ERROR_INVALID_WORKSPACE_SIZE;
    }
    if (needed != 0 && workspace == nullptr) {
        return ERROR_INVALID_WORKSPACE_ADDR;
    }
    RunnerVariantPack runnerPack;
    runnerPack.inTensors = pack.inTensors;
    runnerPack.outTensors = pack.outTensors;
    runnerPack.workspaceBuffer = workspace;
    runnerPack.workspaceBufferSize = needs_.workspaceBytes;
    runnerPack.intermediateBuffer = needs_.intermediateBytes != 0 ? workspace + needs_.workspaceBytes : nullptr;
    runnerPack.intermediateBufferSize = needs_.intermediateBytes;
    runnerPack.context = context;
    std::unique_ptr<MemoryReport> report;
#ifndef STANDIN_ATB_OLD_CONTEXT
    if (workspaceSize != 0 && MemoryReport::IsEnabled()) {
        report.reset(new MemoryReport(workspace, workspaceSize));
        runnerPack.mstxMemRegister = report->HasHeap() ? report.get() : nullptr;
    }
#endif
    runner_->SetPath(Path());
    if (Probe::IsSaveTensorDesc()) {
        runner_->SetSaveTensorDir(Path());
    }
    Status status = runner_->Execute(runnerPack);
    executeCount_++;
    return status;
}

namespace {
class SingleOperation : public OperationBase {
public:
    explicit SingleOperation(Recipe recipe) : OperationBase(recipe.name), recipe_(std::move(recipe))
    {
        runner_.reset(new OpsRunner(recipe_.name, recipe_.work));
    }
    uint32_t GetInputNum() const override { return recipe_.inputs; }
    uint32_t GetOutputNum() const override { return recipe_.outputs; }
    Status InferShape(const SVector<TensorDesc> &inputs, SVector<TensorDesc> &outputs) const override
    {
        if (inputs.size() != recipe_.inputs) {
            return ERROR_INVALID_IN_TENSOR_NUM;
        }
        outputs.resize(recipe_.outputs);
        return recipe_.infer ? recipe_.infer(inputs, outputs) : static_cast<Status>(ERROR_INVALID_PARAM);
    }
    Status Plan(const VariantPack &pack, Needs &needs) override
    {
        needs.workspaceBytes = recipe_.workspaceBytes ? Aligned(recipe_.workspaceBytes(pack)) : 0;
        needs.intermediateBytes = recipe_.intermediateBytes ? Aligned(recipe_.intermediateBytes(pack)) : 0;
        return NO_ERROR;
    }

private:
    Recipe recipe_;
};

struct GraphNode {
    OperationBase *operation;
    SVector<uint32_t> inputs;
    SVector<uint32_t> outputs;
    SVector<ReshapeFunc> reshapes;
    Needs needs;
};

// Runs the nodes of a graph, each with its own runner.
class GraphRunner : public Runner {
public:
    GraphRunner(const std::string &name, std::vector<GraphNode> &nodes, std::vector<Tensor> &tensors, uint32_t inputs,
                uint32_t outputs)
        : Runner(name), nodes_(nodes), tensors_(tensors), inputs_(inputs), outputs_(outputs)
    {
    }
    void SetSaveTensorDir(const std::string &tensorDir) override
    {
        Runner::SetSaveTensorDir(tensorDir);
        for (std::size_t index = 0; index < nodes_.size(); ++index) {
            nodes_[index].operation->GetRunner().SetSaveTensorDir(NodePath(tensorDir, index));
        }
    }
    void SetPath(const std::string &path) override
    {
        Runner::SetPath(path);
        for (std::size_t index = 0; index < nodes_.size(); ++index) {
            nodes_[index].operation->GetRunner().SetPath(NodePath(path, index));
        }
    }
    void PrepareSaving(int64_t id) override
    {
        Runner::PrepareSaving(id);
        for (std::size_t index = 0; index < nodes_.size(); ++index) {
            nodes_[index].operation->GetRunner().PrepareSaving(static_cast<int64_t>(index));
        }
    }
    uint64_t ownBytes = 0;

protected:
    Status ExecuteImpl(RunnerVariantPack &pack) override
    {
        std::copy(pack.inTensors.begin(), pack.inTensors.end(), tensors_.begin());
        std::copy(pack.outTensors.begin(), pack.outTensors.end(), tensors_.begin() + inputs_);
        uint8_t *next = pack.intermediateBuffer;
        for (std::size_t index = inputs_ + outputs_; index < tensors_.size(); ++index) {
            tensors_[index].deviceData = next;
            next += Aligned(tensors_[index].dataSize);
        }
        for (GraphNode &node : nodes_) {
            Status status = ExecuteNode(pack, node);
            if (status != NO_ERROR) {
                return status;
            }
        }
        return NO_ERROR;
    }

private:
    std::string NodePath(const std::string &path, std::size_t index) const
    {
        const OperationBase &operation = *nodes_[index].operation;
        if (!PathsAreNamed()) {
            return path + "/" + std::to_string(index) + "_" + operation.GetName();
        }
        return path + "/" + (operation.IsGraph() ? operation.GetName() : "op" + std::to_string(index));
    }

    Status ExecuteNode(RunnerVariantPack &pack, GraphNode &node)
    {
        RunnerVariantPack nodePack;
        for (std::size_t index = 0; index < node.inputs.size(); ++index) {
            Tensor tensor = tensors_.at(node.inputs[index]);
            if (index < node.reshapes.size() && node.reshapes[index]) {
                const Dims before = tensor.desc.shape;
                node.reshapes[index](before, tensor.desc.shape);
            }
            nodePack.inTensors.push_back(tensor);
        }
        for (uint32_t id : node.outputs) {
            nodePack.outTensors.push_back(tensors_.at(id));
        }
        nodePack.workspaceBuffer = pack.workspaceBuffer;
        nodePack.workspaceBufferSize = node.needs.workspaceBytes;
        if (node.needs.intermediateBytes != 0) {
            nodePack.intermediateBuffer = pack.intermediateBuffer + ownBytes;
            nodePack.intermediateBufferSize = node.needs.intermediateBytes;
        }
        nodePack.context = pack.context;
        std::vector<void *> handles;
#ifndef STANDIN_ATB_OLD_CONTEXT
        nodePack.mstxMemRegister = pack.mstxMemRegister;
        if (pack.mstxMemRegister != nullptr) {
            std::vector<std::pair<void *, uint64_t>> regions;
            for (const auto *ids : {&node.inputs, &node.outputs}) {
                for (uint32_t id : *ids) {
                    if (id >= inputs_ + outputs_) {
                        regions.emplace_back(tensors_[id].deviceData, Aligned(tensors_[id].dataSize));
                    }
                }
            }
            if (!regions.empty()) {
                handles = pack.mstxMemRegister->Register(regions);
            }
        }
#endif
        Status status = node.operation->GetRunner().Execute(nodePack);
#ifndef STANDIN_ATB_OLD_CONTEXT
        if (!handles.empty()) {
            pack.mstxMemRegister->Unregister(handles);
        }
#endif
        return status;
    }

    std::vector<GraphNode> &nodes_;
    std::vector<Tensor> &tensors_;
    uint32_t inputs_;
    uint32_t outputs_;
};

class GraphOperation : public OperationBase {
public:
    explicit GraphOperation(const GraphParam &param)
        : OperationBase(param.name), inputs_(param.inTensorNum), outputs_(param.outTensorNum), infer_(param.inferShapeFunc)
    {
        for (const Node &node : param.nodes) {
            nodes_.push_back({static_cast<OperationBase *>(node.operation), node.inTensorIds, node.outTensorIds,
                              node.inTensorReshapeFuncs, Needs()});
        }
        tensors_.resize(inputs_ + outputs_ + param.internalTensorNum);
        graphRunner_ = new GraphRunner(param.name, nodes_, tensors_, inputs_, outputs_);
        runner_.reset(graphRunner_);
    }
    ~GraphOperation() override
    {
        for (GraphNode &node : nodes_) {
            delete node.operation;
        }
    }
    bool IsGraph() const override { return true; }
    uint32_t GetInputNum() const override { return inputs_; }
    uint32_t GetOutputNum() const override { return outputs_; }
    Status InferShape(const SVector<TensorDesc> &inputs, SVector<TensorDesc> &outputs) const override
    {
        return infer_ ? infer_(inputs, outputs) : static_cast<Status>(ERROR_INVALID_GRAPH);
    }
    Status Plan(const VariantPack &pack, Needs &needs) override
    {
        std::copy(pack.inTensors.begin(), pack.inTensors.end(), tensors_.begin());
        std::copy(pack.outTensors.begin(), pack.outTensors.end(), tensors_.begin() + inputs_);
        uint64_t nodeBytes = 0;
        for (GraphNode &node : nodes_) {
            VariantPack nodePack;
            SVector<TensorDesc> descriptions;
            for (std::size_t index = 0; index < node.inputs.size(); ++index) {
                Tensor tensor = tensors_.at(node.inputs[index]);
                if (index < node.reshapes.size() && node.reshapes[index]) {
                    const Dims before = tensor.desc.shape;
                    node.reshapes[index](before, tensor.desc.shape);
                }
                nodePack.inTensors.push_back(tensor);
                descriptions.push_back(tensor.desc);
            }
            SVector<TensorDesc> results;
            Status status = node.operation->InferShape(descriptions, results);
            if (status != NO_ERROR || results.size() != node.outputs.size()) {
                return ERROR_INVALID_GRAPH;
            }
            for (std::size_t index = 0; index < results.size(); ++index) {
                Tensor &tensor = tensors_.at(node.outputs[index]);
                if (node.outputs[index] >= inputs_ + outputs_) {
                    tensor.desc = results[index];
                    tensor.dataSize = Utils::GetTensorSize(tensor.desc);
                }
                nodePack.outTensors.push_back(tensor);
            }
            node.needs = Needs();
            node.operation->GetRunner().SetStreamId(node.operation->streamId);
            status = node.operation->Plan(nodePack, node.needs);
            if (status != NO_ERROR) {
                return status;
            }
            needs.workspaceBytes = std::max(needs.workspaceBytes, node.needs.workspaceBytes);
            nodeBytes = std::max(nodeBytes, node.needs.intermediateBytes);
        }
        graphRunner_->ownBytes = 0;
        for (std::size_t index = inputs_ + outputs_; index < tensors_.size(); ++index) {
            graphRunner_->ownBytes += Aligned(tensors_[index].dataSize);
        }
        needs.intermediateBytes = graphRunner_->ownBytes + nodeBytes;
        return NO_ERROR;
    }

private:
    uint32_t inputs_;
    uint32_t outputs_;
    InferShapeFunc infer_;
    std::vector<GraphNode> nodes_;
    std::vector<Tensor> tensors_;
    GraphRunner *graphRunner_ = nullptr;
};
} // namespace

Operation *NewOperation(Recipe recipe)
{
    return new SingleOperation(std::move(recipe));
}

Operation *NewGraph(const GraphParam &param)
{
    return new GraphOperation(param);
}

Status CreateContext(Context **context)
{
    if (context == nullptr) {
        return ERROR_INVALID_PARAM;
    }
    *context = new PlainContext();
    return NO_ERROR;
}

Status DestroyContext(Context *context)
{
    delete context;
    return NO_ERROR;
}

Status DestroyOperation(Operation *operation)
{
    delete operation;
    return NO_ERROR;
}

Status SetExecuteStreamId(Operation *operation, uint32_t streamId)
{
    if (operation == nullptr) {
        return ERROR_INVALID_PARAM;
    }
    static_cast<OperationBase *>(operation)->streamId = streamId;
    return NO_ERROR;
}

uint32_t GetExecuteStreamId(Operation *operation)
{
    return operation == nullptr ? 0 : static_cast<OperationBase *>(operation)->streamId;
}

uint64_t Utils::GetTensorNumel(const TensorDesc &description)
{
    uint64_t count = description.shape.dimNum == 0 ? 0 : 1;
    for (uint64_t index = 0; index < description.shape.dimNum; ++index) {
        count *= static_cast<uint64_t>(description.shape.dims[index]);
    }
    return count;
}

uint64_t Utils::GetTensorNumel(const Tensor &tensor)
{
    return GetTensorNumel(tensor.desc);
}

uint64_t Utils::GetTensorSize(const TensorDesc &description)
{
    switch (description.dtype) {
        case ACL_INT8:
        case ACL_UINT8:
        case ACL_BOOL:
            return GetTensorNumel(description);
        case ACL_FLOAT16:
        case ACL_BF16:
        case ACL_INT16:
            return GetTensorNumel(description) * 2;
        case ACL_INT64:
        case ACL_DOUBLE:
            return GetTensorNumel(description) * 8;
        case ACL_DT_UNDEFINED:
            return 0;
        default:
            return GetTensorNumel(description) * 4;
    }
}

uint64_t Utils::GetTensorSize(const Tensor &tensor)
{
    return GetTensorSize(tensor.desc);
}
} // namespace atb
