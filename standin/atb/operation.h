// How operations are made: a recipe says what one computes, OperationBase executes it in the order of ATB.
#ifndef STANDIN_ATB_OPERATION_BASE_H
#define STANDIN_ATB_OPERATION_BASE_H

#include <memory>

#include "runner.h"

namespace atb {
// What an operation of one runner does.
struct Recipe {
    std::string name;
    uint32_t inputs = 0;
    uint32_t outputs = 0;
    // Bytes for its kernels, and for tensors between them.
    std::function<uint64_t(const VariantPack &)> workspaceBytes;
    std::function<uint64_t(const VariantPack &)> intermediateBytes;
    std::function<Status(const SVector<TensorDesc> &, SVector<TensorDesc> &)> infer;
    std::function<void(OpsRunner &, RunnerVariantPack &)> work;
};

// Bytes of workspace and of tensors between kernels or nodes.
struct Needs {
    uint64_t workspaceBytes = 0;
    uint64_t intermediateBytes = 0;
};

class OperationBase : public Operation {
public:
    explicit OperationBase(const std::string &name);
    std::string GetName() const override;
    Status Setup(const VariantPack &variantPack, uint64_t &workspaceSize, Context *context) override;
    Status Execute(const VariantPack &variantPack, uint8_t *workspace, uint64_t workspaceSize,
                   Context *context) override;

    // What a pack needs; fails for one that it cannot work on.
    virtual Status Plan(const VariantPack &pack, Needs &needs) = 0;
    virtual bool IsGraph() const { return false; }
    Runner &GetRunner() { return *runner_; }
    uint32_t streamId = 0;

protected:
    std::unique_ptr<Runner> runner_;

private:
    std::string Path() const;

    std::string name_;
    int64_t id_ = 0;
    uint64_t executeCount_ = 0;
    Needs needs_;
    bool isSetUp_ = false;
};

Operation *NewOperation(Recipe recipe);
Operation *NewGraph(const GraphParam &param);
// Whether paths are made of names only (token0/layer0/module0/op0), not of numbers and names.
bool PathsAreNamed();
uint64_t Aligned(uint64_t size);
} // namespace atb

#endif
