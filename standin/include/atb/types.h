/* Tensors, packs of tensors and graphs of ATB, laid out as there. */
#ifndef STANDIN_ATB_TYPES_H
#define STANDIN_ATB_TYPES_H

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "atb/svector.h"

namespace atb {
using Status = int32_t;
constexpr uint32_t MAX_DIM = 8;

enum ErrorType : int {
    NO_ERROR = 0,
    ERROR_INVALID_PARAM = 1,
    ERROR_INVALID_GRAPH = 2,
    ERROR_INTERNAL_ERROR = 3,
    ERROR_RT_FAIL = 4,
    ERROR_INVALID_IN_TENSOR_NUM = 5,
    ERROR_INVALID_TENSOR_DTYPE = 6,
    ERROR_INVALID_TENSOR_DIM = 8,
    ERROR_INVALID_CONTEXT_ADDR = 20,
    ERROR_INVALID_WORKSPACE_SIZE = 22,
    ERROR_INVALID_WORKSPACE_ADDR = 23,
};

struct Dims {
    int64_t dims[MAX_DIM];
    uint64_t dimNum = 0;
};

struct TensorDesc {
    aclDataType dtype = ACL_DT_UNDEFINED;
    aclFormat format = ACL_FORMAT_UNDEFINED;
    Dims shape;
};

struct Tensor {
    TensorDesc desc;
    void *deviceData = nullptr;
    void *hostData = nullptr;
    uint64_t dataSize = 0;
};

struct VariantPack {
    SVector<Tensor> inTensors;
    SVector<Tensor> outTensors;
};

struct Chunk {
    uint32_t chunkNum = 1;
    uint32_t chunkIndex = 0;
};

using ReshapeFunc = std::function<void(const Dims &oldShape, Dims &newShape)>;
using InferShapeFunc =
    std::function<Status(const SVector<TensorDesc> &inTensorDescs, SVector<TensorDesc> &outTensorDescs)>;

class Operation;

struct Node {
    Operation *operation = nullptr;
    SVector<uint32_t> inTensorIds;
    SVector<uint32_t> outTensorIds;
    SVector<ReshapeFunc> inTensorReshapeFuncs;
    SVector<Chunk> inTensorChunks;
};

/* Tensors are numbered: those that go in, those that come out, then those between the nodes. */
struct GraphParam {
    std::string name;
    uint32_t inTensorNum = 0;
    uint32_t outTensorNum = 0;
    uint32_t internalTensorNum = 0;
    std::vector<Node> nodes;
    InferShapeFunc inferShapeFunc = nullptr;
};

static_assert(sizeof(Tensor) == 104 && sizeof(SVector<Tensor>) == 6784 && sizeof(SVector<bool>) == 96, "layout of ATB");
} // namespace atb

#endif
