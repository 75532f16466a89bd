/* Everything of ATB that programs include. */
#ifndef STANDIN_ATB_ATB_INFER_H
#define STANDIN_ATB_ATB_INFER_H

#include "atb/context.h"
#include "atb/infer_op_params.h"
#include "atb/operation.h"
#include "atb/types.h"
#include "atb/utils.h"

#endif
