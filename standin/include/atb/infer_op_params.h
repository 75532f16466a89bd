/* Parameters of the operations that the stand-in has, laid out as in ATB. Values that it does not know are refused. */
#ifndef STANDIN_ATB_INFER_OP_PARAMS_H
#define STANDIN_ATB_INFER_OP_PARAMS_H

#include "atb/types.h"

namespace atb {
namespace infer {
struct LinearParam {
    bool transposeA = false;
    bool transposeB = true;
    bool hasBias = true;
    aclDataType outDataType = ACL_DT_UNDEFINED;
    bool enAccum = false;
    uint8_t matmulType = 0;
    uint8_t quantMode = 0;
    uint8_t rsv[21] = {0};
};

struct ElewiseParam {
    enum ElewiseType : int {
        ELEWISE_UNDEFINED = 0,
        ELEWISE_CAST = 1,
        ELEWISE_MULS = 2,
        ELEWISE_COS = 3,
        ELEWISE_SIN = 4,
        ELEWISE_NEG = 5,
        ELEWISE_QUANT = 6,
        ELEWISE_ADD = 8,
        ELEWISE_MUL = 9,
        ELEWISE_REALDIV = 10,
        ELEWISE_SUB = 15,
        ELEWISE_QUANT_PER_CHANNEL = 17,
        ELEWISE_TANH = 20,
    };
    struct QuantParam {
        float inputScale = 1.0f;
        bool asymmetric = false;
        int inputOffset = 0;
        uint8_t rsv[20] = {0};
    };
    struct MulsParam {
        float varAttr = 0.0f;
        uint8_t rsv[12] = {0};
    };
    ElewiseType elewiseType = ELEWISE_UNDEFINED;
    QuantParam quantParam;
    MulsParam mulsParam;
    aclDataType outTensorType = ACL_DT_UNDEFINED;
    uint8_t rsv[8] = {0};
};

struct RmsNormParam {
    enum RmsNormType : int { RMS_NORM_UNDEFINED = 0, RMS_NORM_NORM = 1 };
    enum QuantType : int { QUANT_UNQUANT = 0, QUANT_INT8 = 2 };
    struct NormParam {
        int quantType = QUANT_UNQUANT;
        float epsilon = 1e-5f;
        double layerNormEps = 1e-5;
        bool rstd = false;
        int precisionMode = 0;
        int modelType = 0;
        int dynamicQuantType = 0;
        uint8_t rsv[32] = {0};
    };
    struct ResidualNormParam {
        int quantType = QUANT_UNQUANT;
        float epsilon = 1e-5f;
        bool hasBias = false;
        uint8_t rsv[23] = {0};
    };
    RmsNormType layerType = RMS_NORM_UNDEFINED;
    NormParam normParam;
    ResidualNormParam preNormParam;
    ResidualNormParam postNormParam;
    uint8_t rsv[8] = {0};
};

struct GroupTopkParam {
    int32_t groupNum = 1;
    int32_t k = 0;
    uint16_t groupMultiFlag = 0;
    uint16_t n = 1;
    uint8_t rsv[12] = {0};
};

struct SelfAttentionParam {
    enum CalcType : int { UNDEFINED = 0, ENCODER = 1, DECODER = 2, PA_ENCODER = 3, PREFIX_ENCODER = 4 };
    enum MaskType : int { MASK_TYPE_UNDEFINED = 0, MASK_TYPE_NORM = 1 };
    int quantType = 0;
    aclDataType outDataType = ACL_DT_UNDEFINED;
    int32_t headNum = 0;
    int32_t kvHeadNum = 0;
    float qScale = 1;
    float qkScale = 1;
    bool batchRunStatusEnable = false;
    uint32_t isTriuMask = 0;
    CalcType calcType = UNDEFINED;
    int kernelType = 0;
    int clampType = 0;
    float clampMin = 0;
    float clampMax = 0;
    MaskType maskType = MASK_TYPE_UNDEFINED;
    int kvcacheCfg = 0;
    int scaleType = 0;
    int inputLayout = 0;
    uint32_t mlaVHeadSize = 0;
    int8_t cacheType = 0;
    uint32_t windowSize = 0;
    uint8_t rsv[64] = {0};
};

struct PagedAttentionParam {
    int32_t headNum = 0;
    float qkScale = 1.0f;
    int32_t kvHeadNum = 0;
    int maskType = 0;
    bool batchRunStatusEnable = false;
    int quantType = 0;
    aclDataType outDataType = ACL_DT_UNDEFINED;
    bool hasQuantOffset = false;
    int compressType = 0;
    int calcType = 0;
    int scaleType = 0;
    int inputLayout = 0;
    uint32_t mlaVHeadSize = 0;
    float qScale = 0;
    uint8_t rsv[64] = {0};
};

struct ReshapeAndCacheParam {
    enum KvCacheCfg : int { K_CACHE_V_CACHE = 0, K_CACHE_V_BYPASS = 1 };
    int compressType = 0;
    KvCacheCfg kvCacheCfg = K_CACHE_V_CACHE;
    uint8_t rsv[16] = {0};
};

struct RopeParam {
    int32_t rotaryCoeff = 4;
    int32_t cosFormat = 0;
    uint8_t rsv[8] = {0};
};
} // namespace infer
} // namespace atb

#endif
