// What the operations compute, by the formulas of ATB's documentation, and how each is made from its parameters.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "atb/infer_op_params.h"
#include "atb/utils.h"
#include "elements.h"
#include "operation.h"

namespace atb {
using standin::Get;
using standin::Set;

namespace {
uint64_t Elements(const Tensor &tensor)
{
    return Utils::GetTensorNumel(tensor);
}

int64_t Dim(const Tensor &tensor, uint64_t index)
{
    return index < tensor.desc.shape.dimNum ? tensor.desc.shape.dims[index] : 1;
}

int64_t LastDim(const Tensor &tensor)
{
    return tensor.desc.shape.dimNum == 0 ? 1 : tensor.desc.shape.dims[tensor.desc.shape.dimNum - 1];
}

// A tensor inside of the operation's own memory.
Tensor Between(const RunnerVariantPack &pack, aclDataType dtype, std::initializer_list<int64_t> dims)
{
    Tensor tensor;
    tensor.desc.dtype = dtype;
    tensor.desc.format = ACL_FORMAT_ND;
    tensor.desc.shape.dimNum = dims.size();
    std::copy(dims.begin(), dims.end(), tensor.desc.shape.dims);
    tensor.deviceData = pack.intermediateBuffer;
    tensor.dataSize = Utils::GetTensorSize(tensor);
    return tensor;
}

Status LikeFirst(const SVector<TensorDesc> &inputs, SVector<TensorDesc> &outputs)
{
    for (TensorDesc &output : outputs) {
        output = inputs[0];
    }
    return NO_ERROR;
}

struct Product {
    int64_t rows;
    int64_t columns;
    int64_t depth;
};

Product ProductOf(const TensorDesc &left, const TensorDesc &right, const infer::LinearParam &param)
{
    const int64_t *a = left.shape.dims;
    const int64_t *b = right.shape.dims;
    int64_t rows = 1;
    for (uint64_t index = 0; index + 1 < left.shape.dimNum; ++index) {
        rows *= a[index];
    }
    const int64_t last = a[left.shape.dimNum - 1];
    return {param.transposeA ? last : rows, param.transposeB ? b[0] : b[1], param.transposeA ? rows : last};
}

Recipe Linear(const infer::LinearParam &param)
{
    const bool hasThird = param.hasBias || param.enAccum;
    Recipe recipe;
    recipe.name = "LinearOperation";
    recipe.inputs = hasThird ? 3 : 2;
    recipe.outputs = 1;
    recipe.infer = [param](const SVector<TensorDesc> &inputs, SVector<TensorDesc> &outputs) -> Status {
        const Product product = ProductOf(inputs[0], inputs[1], param);
        outputs[0] = inputs[0];
        if (!param.transposeA) {
            outputs[0].shape.dims[outputs[0].shape.dimNum - 1] = product.columns;
        } else {
            outputs[0].shape.dimNum = 2;
            outputs[0].shape.dims[0] = product.rows;
            outputs[0].shape.dims[1] = product.columns;
        }
        if (param.outDataType != ACL_DT_UNDEFINED) {
            outputs[0].dtype = param.outDataType;
        }
        return NO_ERROR;
    };
    if (hasThird) {
        recipe.intermediateBytes = [param](const VariantPack &pack) {
            const Product product = ProductOf(pack.inTensors[0].desc, pack.inTensors[1].desc, param);
            return static_cast<uint64_t>(product.rows * product.columns) * 4;
        };
    }
    recipe.workspaceBytes = [](const VariantPack &) { return uint64_t(4096); };
    recipe.work = [param, hasThird](OpsRunner &runner, RunnerVariantPack &pack) {
        const Tensor a = pack.inTensors[0];
        const Tensor b = pack.inTensors[1];
        const Tensor out = pack.outTensors[0];
        const Product product = ProductOf(a.desc, b.desc, param);
        const Tensor result =
            hasThird ? Between(pack, ACL_FLOAT, {product.rows, product.columns}) : out;
        runner.Launch("MatMulKernel", {a, b}, {result}, [=] {
            for (int64_t row = 0; row < product.rows; ++row) {
                for (int64_t column = 0; column < product.columns; ++column) {
                    double sum = 0;
                    for (int64_t step = 0; step < product.depth; ++step) {
                        const int64_t left = param.transposeA ? step * product.rows + row : row * product.depth + step;
                        const int64_t right =
                            param.transposeB ? column * product.depth + step : step * product.columns + column;
                        sum += Get(a, left) * Get(b, right);
                    }
                    Set(result, row * product.columns + column, sum);
                }
            }
        });
        if (hasThird) {
            const Tensor third = pack.inTensors[2];
            const uint64_t period = Elements(third);
            runner.Launch("AddKernel", {result, third}, {out}, [=] {
                for (uint64_t index = 0; index < Elements(out); ++index) {
                    Set(out, index, Get(result, index) + Get(third, index % period));
                }
            });
        }
    };
    return recipe;
}

Recipe Elementwise(const infer::ElewiseParam &param)
{
    using Type = infer::ElewiseParam;
    const bool isBinary = param.elewiseType == Type::ELEWISE_ADD || param.elewiseType == Type::ELEWISE_SUB ||
                          param.elewiseType == Type::ELEWISE_MUL || param.elewiseType == Type::ELEWISE_REALDIV;
    const bool isQuantization = param.elewiseType == Type::ELEWISE_QUANT_PER_CHANNEL;
    Recipe recipe;
    recipe.name = "ElewiseOperation";
    recipe.inputs = isQuantization ? 3 : isBinary ? 2 : 1;
    recipe.outputs = 1;
    recipe.infer = [param, isQuantization](const SVector<TensorDesc> &inputs, SVector<TensorDesc> &outputs) -> Status {
        outputs[0] = inputs[0];
        if (param.outTensorType != ACL_DT_UNDEFINED) {
            outputs[0].dtype = param.outTensorType;
        } else if (isQuantization) {
            outputs[0].dtype = ACL_INT8;
        }
        return NO_ERROR;
    };
    recipe.work = [param](OpsRunner &runner, RunnerVariantPack &pack) {
        std::vector<Tensor> inputs(pack.inTensors.begin(), pack.inTensors.end());
        const Tensor out = pack.outTensors[0];
        runner.Launch("ElewiseKernel", inputs, {out}, [=] {
            auto operand = [&](std::size_t which, uint64_t index) {
                return Get(inputs[which], index % Elements(inputs[which]));
            };
            for (uint64_t index = 0; index < Elements(out); ++index) {
                const double value = Get(inputs[0], index);
                switch (param.elewiseType) {
                    case Type::ELEWISE_ADD:
                        Set(out, index, value + operand(1, index));
                        break;
                    case Type::ELEWISE_SUB:
                        Set(out, index, value - operand(1, index));
                        break;
                    case Type::ELEWISE_MUL:
                        Set(out, index, value * operand(1, index));
                        break;
                    case Type::ELEWISE_REALDIV:
                        Set(out, index, value / operand(1, index));
                        break;
                    case Type::ELEWISE_MULS:
                        Set(out, index, value * param.mulsParam.varAttr);
                        break;
                    case Type::ELEWISE_NEG:
                        Set(out, index, -value);
                        break;
                    case Type::ELEWISE_COS:
                        Set(out, index, std::cos(value));
                        break;
                    case Type::ELEWISE_SIN:
                        Set(out, index, std::sin(value));
                        break;
                    case Type::ELEWISE_TANH:
                        Set(out, index, std::tanh(value));
                        break;
                    case Type::ELEWISE_QUANT_PER_CHANNEL:
                        Set(out, index, std::nearbyint(value / operand(1, index)) + operand(2, index));
                        break;
                    default:
                        Set(out, index, value);
                }
            }
        });
    };
    return recipe;
}

Recipe RootMeanSquareNorm(const infer::RmsNormParam &param)
{
    const bool isQuantized = param.normParam.quantType == infer::RmsNormParam::QUANT_INT8;
    Recipe recipe;
    recipe.name = "RmsNormOperation";
    recipe.inputs = isQuantized ? 5 : 2;
    recipe.outputs = 1;
    recipe.infer = [isQuantized](const SVector<TensorDesc> &inputs, SVector<TensorDesc> &outputs) -> Status {
        outputs[0] = inputs[0];
        outputs[0].dtype = isQuantized ? ACL_INT8 : inputs[0].dtype;
        return NO_ERROR;
    };
    recipe.work = [param, isQuantized](OpsRunner &runner, RunnerVariantPack &pack) {
        std::vector<Tensor> inputs(pack.inTensors.begin(), pack.inTensors.end());
        const Tensor out = pack.outTensors[0];
        runner.Launch("RmsNormKernel", inputs, {out}, [=] {
            const uint64_t width = Elements(inputs[1]);
            for (uint64_t row = 0; row < Elements(inputs[0]) / width; ++row) {
                double squares = 0;
                for (uint64_t column = 0; column < width; ++column) {
                    const double value = Get(inputs[0], row * width + column);
                    squares += value * value;
                }
                const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + param.normParam.epsilon);
                for (uint64_t column = 0; column < width; ++column) {
                    double value = Get(inputs[0], row * width + column) * factor * Get(inputs[1], column);
                    if (isQuantized) {
                        value = (value + Get(inputs[2], column)) * Get(inputs[3], 0) + Get(inputs[4], 0);
                    }
                    Set(out, row * width + column, value);
                }
            }
        });
    };
    return recipe;
}

Recipe GroupTopk(const infer::GroupTopkParam &param)
{
    Recipe recipe;
    recipe.name = "GroupTopkOperation";
    recipe.inputs = 2;
    recipe.outputs = 1;
    recipe.infer = LikeFirst;
    recipe.work = [param](OpsRunner &runner, RunnerVariantPack &pack) {
        const Tensor in = pack.inTensors[0];
        const Tensor out = pack.outTensors[0];
        runner.Launch("GroupTopkKernel", {in, pack.inTensors[1]}, {out}, [=] {
            const int64_t experts = LastDim(in);
            const int64_t size = experts / param.groupNum;
            for (uint64_t row = 0; row < Elements(in) / experts; ++row) {
                std::vector<double> scores;
                for (int64_t group = 0; group < param.groupNum; ++group) {
                    std::vector<double> values;
                    for (int64_t member = 0; member < size; ++member) {
                        values.push_back(Get(in, row * experts + group * size + member));
                    }
                    std::sort(values.rbegin(), values.rend());
                    const int64_t taken = param.groupMultiFlag == 0 ? 1 : std::min<int64_t>(param.n, size);
                    scores.push_back(std::accumulate(values.begin(), values.begin() + taken, 0.0));
                }
                std::vector<int64_t> order(param.groupNum);
                std::iota(order.begin(), order.end(), 0);
                std::stable_sort(order.begin(), order.end(),
                                 [&](int64_t left, int64_t right) { return scores[left] > scores[right]; });
                for (int64_t place = param.k; place < param.groupNum; ++place) {
                    for (int64_t member = 0; member < size; ++member) {
                        Set(out, row * experts + order[place] * size + member, 0);
                    }
                }
            }
        });
    };
    return recipe;
}

// Softmax of the scores of one query over keys, applied to their values.
struct Attention {
    Tensor query, out;
    int64_t width, keyHeads;
    double scale;

    template <class Key, class Value, class Mask>
    void Run(int64_t token, int64_t heads, int64_t head, int64_t keys, Key key, Value value, Mask mask) const
    {
        std::vector<double> weights(keys);
        double most = -std::numeric_limits<double>::infinity();
        const int64_t keyHead = head / (heads / keyHeads);
        for (int64_t index = 0; index < keys; ++index) {
            double sum = 0;
            for (int64_t step = 0; step < width; ++step) {
                sum += Get(query, (token * heads + head) * width + step) * key(index, keyHead, step);
            }
            weights[index] = sum * scale + mask(index);
            most = std::max(most, weights[index]);
        }
        double total = 0;
        for (double &weight : weights) {
            weight = std::exp(weight - most);
            total += weight;
        }
        for (int64_t step = 0; step < width; ++step) {
            double sum = 0;
            for (int64_t index = 0; index < keys; ++index) {
                sum += weights[index] / total * value(index, keyHead, step);
            }
            Set(out, (token * heads + head) * width + step, sum);
        }
    }
};

// Numbers that are needed when a kernel is made, because they are in the host's memory.
std::vector<int64_t> Numbers(const Tensor &tensor)
{
    std::vector<int64_t> numbers;
    for (uint64_t index = 0; index < Elements(tensor); ++index) {
        numbers.push_back(static_cast<int64_t>(Get(tensor, index)));
    }
    return numbers;
}

Recipe SelfAttention(const infer::SelfAttentionParam &param)
{
    const bool hasMask = param.maskType == infer::SelfAttentionParam::MASK_TYPE_NORM;
    Recipe recipe;
    recipe.name = "SelfAttentionOperation";
    recipe.inputs = hasMask ? 5 : 4;
    recipe.outputs = 1;
    recipe.infer = LikeFirst;
    recipe.workspaceBytes = [](const VariantPack &pack) { return pack.inTensors[0].dataSize; };
    recipe.work = [param, hasMask](OpsRunner &runner, RunnerVariantPack &pack) {
        std::vector<Tensor> inputs(pack.inTensors.begin(), pack.inTensors.end());
        const Tensor out = pack.outTensors[0];
        const Tensor lengths = inputs.back();
        const std::vector<int64_t> sequences = Numbers(lengths);
        runner.Launch("FlashAttentionKernel", inputs, {out}, [=] {
            const int64_t heads = param.headNum;
            const int64_t keyHeads = param.kvHeadNum != 0 ? param.kvHeadNum : heads;
            const int64_t width = static_cast<int64_t>(Elements(inputs[0])) / Dim(inputs[0], 0) / heads;
            const Attention attention = {inputs[0], out, width, keyHeads, param.qkScale};
            int64_t first = 0;
            for (int64_t length : sequences) {
                for (int64_t token = 0; token < length; ++token) {
                    for (int64_t head = 0; head < heads; ++head) {
                        auto at = [&](const Tensor &tensor) {
                            return [&, first](int64_t index, int64_t keyHead, int64_t step) {
                                return Get(tensor, ((first + index) * keyHeads + keyHead) * width + step);
                            };
                        };
                        auto mask = [&](int64_t index) {
                            return hasMask ? Get(inputs[3], token * LastDim(inputs[3]) + index) : 0.0;
                        };
                        attention.Run(first + token, heads, head, length, at(inputs[1]), at(inputs[2]), mask);
                    }
                }
                first += length;
            }
        });
    };
    return recipe;
}

// Tokens of several sequences against the cache: one of each, or as many as a last input says. A mask has a row for each
// token.
Recipe PagedAttention(const infer::PagedAttentionParam &param)
{
    const bool hasMask = param.maskType != 0;
    const bool hasQueryLengths = param.calcType != 0;
    Recipe recipe;
    recipe.name = "PagedAttentionOperation";
    recipe.inputs = 5 + (hasMask ? 1 : 0) + (hasQueryLengths ? 1 : 0);
    recipe.outputs = 1;
    recipe.infer = LikeFirst;
    recipe.workspaceBytes = [](const VariantPack &pack) { return pack.inTensors[0].dataSize; };
    recipe.work = [=](OpsRunner &runner, RunnerVariantPack &pack) {
        std::vector<Tensor> inputs(pack.inTensors.begin(), pack.inTensors.end());
        const Tensor out = pack.outTensors[0];
        auto fromHost = [](const Tensor &tensor) {
            return tensor.deviceData == nullptr ? Numbers(tensor) : std::vector<int64_t>();
        };
        const std::vector<int64_t> hostLengths = fromHost(inputs[4]);
        const std::vector<int64_t> hostQueries = hasQueryLengths ? fromHost(inputs.back()) : hostLengths;
        runner.Launch("PagedAttentionKernel", inputs, {out}, [=] {
            const int64_t heads = param.headNum;
            const int64_t keyHeads = param.kvHeadNum != 0 ? param.kvHeadNum : heads;
            const int64_t tokens = Dim(inputs[0], 0);
            const int64_t width = static_cast<int64_t>(Elements(inputs[0])) / tokens / heads;
            const int64_t slots = Dim(inputs[1], 1);
            const Attention attention = {inputs[0], out, width, keyHeads, param.qkScale};
            auto number = [](const Tensor &tensor, const std::vector<int64_t> &onHost, int64_t index) {
                return onHost.empty() ? static_cast<int64_t>(Get(tensor, index)) : onHost[index];
            };
            int64_t sequence = 0;
            int64_t left = hasQueryLengths ? number(inputs.back(), hostQueries, 0) : 1;
            for (int64_t token = 0; token < tokens; ++token, --left) {
                while (left == 0) {
                    ++sequence;
                    left = hasQueryLengths ? number(inputs.back(), hostQueries, sequence) : 1;
                }
                auto at = [&](const Tensor &cache) {
                    return [&](int64_t index, int64_t keyHead, int64_t step) {
                        const auto block =
                            static_cast<int64_t>(Get(inputs[3], sequence * LastDim(inputs[3]) + index / slots));
                        return Get(cache, ((block * slots + index % slots) * keyHeads + keyHead) * width + step);
                    };
                };
                auto mask = [&](int64_t index) {
                    return hasMask ? Get(inputs[5], token * LastDim(inputs[5]) + index) : 0.0;
                };
                for (int64_t head = 0; head < heads; ++head) {
                    attention.Run(token, heads, head, number(inputs[4], hostLengths, sequence), at(inputs[1]),
                                  at(inputs[2]), mask);
                }
            }
        });
    };
    return recipe;
}

Recipe ReshapeAndCache(const infer::ReshapeAndCacheParam &param)
{
    const bool hasValues = param.kvCacheCfg != infer::ReshapeAndCacheParam::K_CACHE_V_BYPASS;
    Recipe recipe;
    recipe.name = "ReshapeAndCacheOperation";
    recipe.inputs = hasValues ? 5 : 3;
    recipe.outputs = hasValues ? 2 : 1;
    recipe.infer = [hasValues](const SVector<TensorDesc> &inputs, SVector<TensorDesc> &outputs) -> Status {
        for (std::size_t index = 0; index < outputs.size(); ++index) {
            outputs[index] = inputs[(hasValues ? 2 : 1) + index];
        }
        return NO_ERROR;
    };
    recipe.work = [](OpsRunner &runner, RunnerVariantPack &pack) {
        std::vector<Tensor> inputs(pack.inTensors.begin(), pack.inTensors.end());
        std::vector<Tensor> outputs(pack.outTensors.begin(), pack.outTensors.end());
        runner.Launch("ReshapeAndCacheKernel", inputs, outputs, [=] {
            const Tensor &slots = inputs.back();
            for (std::size_t which = 0; which < outputs.size(); ++which) {
                const uint64_t width = Elements(inputs[which]) / Dim(inputs[which], 0);
                for (int64_t token = 0; token < Dim(inputs[which], 0); ++token) {
                    const auto slot = static_cast<int64_t>(Get(slots, token));
                    for (uint64_t step = 0; slot >= 0 && step < width; ++step) {
                        Set(outputs[which], slot * width + step, Get(inputs[which], token * width + step));
                    }
                }
            }
        });
    };
    return recipe;
}

Recipe Rope(const infer::RopeParam &param)
{
    Recipe recipe;
    recipe.name = "RopeOperation";
    recipe.inputs = 5;
    recipe.outputs = 2;
    recipe.infer = [](const SVector<TensorDesc> &inputs, SVector<TensorDesc> &outputs) -> Status {
        outputs[0] = inputs[0];
        outputs[1] = inputs[1];
        return NO_ERROR;
    };
    recipe.work = [param](OpsRunner &runner, RunnerVariantPack &pack) {
        std::vector<Tensor> inputs(pack.inTensors.begin(), pack.inTensors.end());
        std::vector<Tensor> outputs(pack.outTensors.begin(), pack.outTensors.end());
        runner.Launch("RopeKernel", inputs, outputs, [=] {
            const int64_t width = LastDim(inputs[2]);
            for (std::size_t which = 0; which < 2; ++which) {
                const int64_t tokens = Dim(inputs[2], 0);
                const int64_t heads = static_cast<int64_t>(Elements(inputs[which])) / tokens / width;
                for (int64_t token = 0; token < tokens; ++token) {
                    for (int64_t head = 0; head < heads; ++head) {
                        const int64_t start = (token * heads + head) * width;
                        std::vector<double> values(width);
                        for (int64_t step = 0; step < width; ++step) {
                            values[step] = Get(inputs[which], start + step);
                        }
                        for (int64_t step = 0; step < width; ++step) {
                            const int64_t half = width / 2;
                            const bool isFirst = param.rotaryCoeff == 2 ? step < half : step % 2 == 0;
                            const int64_t other = param.rotaryCoeff == 2 ? (step + half) % width : step ^ 1;
                            const double turned = isFirst ? -values[other] : values[other];
                            Set(outputs[which], start + step,
                                values[step] * Get(inputs[2], token * width + step) +
                                    turned * Get(inputs[3], token * width + step));
                        }
                    }
                }
            }
        });
    };
    return recipe;
}

Status Give(Operation **operation, Operation *made)
{
    if (operation == nullptr) {
        delete made;
        return ERROR_INVALID_PARAM;
    }
    *operation = made;
    return NO_ERROR;
}
} // namespace

template <> Status CreateOperation(const infer::LinearParam &param, Operation **operation)
{
    return param.quantMode != 0 ? static_cast<Status>(ERROR_INVALID_PARAM)
                                : Give(operation, NewOperation(Linear(param)));
}

template <> Status CreateOperation(const infer::ElewiseParam &param, Operation **operation)
{
    return Give(operation, NewOperation(Elementwise(param)));
}

template <> Status CreateOperation(const infer::RmsNormParam &param, Operation **operation)
{
    return param.layerType != infer::RmsNormParam::RMS_NORM_NORM ? static_cast<Status>(ERROR_INVALID_PARAM)
                                                                 : Give(operation, NewOperation(RootMeanSquareNorm(param)));
}

template <> Status CreateOperation(const infer::GroupTopkParam &param, Operation **operation)
{
    return param.groupNum <= 0 ? static_cast<Status>(ERROR_INVALID_PARAM)
                               : Give(operation, NewOperation(GroupTopk(param)));
}

template <> Status CreateOperation(const infer::SelfAttentionParam &param, Operation **operation)
{
    return param.calcType != infer::SelfAttentionParam::PA_ENCODER || param.headNum <= 0
               ? static_cast<Status>(ERROR_INVALID_PARAM)
               : Give(operation, NewOperation(SelfAttention(param)));
}

template <> Status CreateOperation(const infer::PagedAttentionParam &param, Operation **operation)
{
    return param.headNum <= 0 ? static_cast<Status>(ERROR_INVALID_PARAM)
                              : Give(operation, NewOperation(PagedAttention(param)));
}

template <> Status CreateOperation(const infer::ReshapeAndCacheParam &param, Operation **operation)
{
    return Give(operation, NewOperation(ReshapeAndCache(param)));
}

template <> Status CreateOperation(const infer::RopeParam &param, Operation **operation)
{
    return Give(operation, NewOperation(Rope(param)));
}

template <> Status CreateOperation(const GraphParam &param, Operation **operation)
{
    return param.nodes.empty() ? static_cast<Status>(ERROR_INVALID_GRAPH) : Give(operation, NewGraph(param));
}
} // namespace atb
