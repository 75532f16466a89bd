/* What runs. The order of the virtual functions is ATB's. */
#ifndef STANDIN_ATB_OPERATION_H
#define STANDIN_ATB_OPERATION_H

#include "atb/context.h"
#include "atb/types.h"

namespace atb {
class Operation {
public:
    virtual ~Operation() = default;
    virtual std::string GetName() const = 0;
    virtual Status InferShape(const SVector<TensorDesc> &inTensorDescs, SVector<TensorDesc> &outTensorDescs) const = 0;
    virtual uint32_t GetInputNum() const = 0;
    virtual uint32_t GetOutputNum() const = 0;
    virtual Status Setup(const VariantPack &variantPack, uint64_t &workspaceSize, Context *context) = 0;
    virtual Status Execute(const VariantPack &variantPack, uint8_t *workspace, uint64_t workspaceSize,
                           Context *context) = 0;
};

template <typename OpParam> Status CreateOperation(const OpParam &opParam, Operation **operation);
Status DestroyOperation(Operation *operation);
Status SetExecuteStreamId(Operation *operation, uint32_t streamId);
uint32_t GetExecuteStreamId(Operation *operation);
} // namespace atb

#endif
