/* Sizes of tensors. */
#ifndef STANDIN_ATB_UTILS_H
#define STANDIN_ATB_UTILS_H

#include "atb/types.h"

namespace atb {
class Utils {
public:
    static uint64_t GetTensorSize(const Tensor &tensor);
    static uint64_t GetTensorSize(const TensorDesc &tensorDesc);
    static uint64_t GetTensorNumel(const Tensor &tensor);
    static uint64_t GetTensorNumel(const TensorDesc &tensorDesc);
};
} // namespace atb

#endif
