// Elements of tensors as numbers, whatever their type. Rounds to the nearest, ties to even, as cards do.
#ifndef STANDIN_ATB_ELEMENTS_H
#define STANDIN_ATB_ELEMENTS_H

#include "atb/types.h"

namespace standin {
double Get(const atb::Tensor &tensor, uint64_t index);
void Set(const atb::Tensor &tensor, uint64_t index, double value);
} // namespace standin

#endif
