#include "elements.h"

#include <cmath>
#include <cstring>

namespace standin {
namespace {
float FromHalf(uint16_t bits)
{
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    const int exponent = bits >> 10 & 0x1f;
    const int fraction = bits & 0x3ff;
    float value;
    if (exponent == 0x1f) {
        value = fraction != 0 ? NAN : INFINITY;
    } else if (exponent == 0) {
        value = std::ldexp(static_cast<float>(fraction), -24);
    } else {
        value = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
    }
    return sign != 0 ? -value : value;
}

uint16_t ToHalf(double value)
{
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    value = std::fabs(value);
    if (std::isnan(value)) {
        return sign | 0x7e00;
    }
    if (value >= 65520) {
        return sign | 0x7c00;
    }
    if (value == 0) {
        return sign;
    }
    int exponent = 0;
    std::frexp(value, &exponent);
    const int scale = std::max(exponent - 11, -24);
    const auto digits = static_cast<uint32_t>(std::nearbyint(std::ldexp(value, -scale)));
    // A number of 11 digits has its first one in the place of the exponent's last, which carries by itself.
    return static_cast<uint16_t>(sign | (scale == -24 ? digits : digits + (static_cast<uint32_t>(scale + 24) << 10)));
}

float FromBrain(uint16_t bits)
{
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return value;
}

uint16_t ToBrain(double value)
{
    const auto narrow = static_cast<float>(value);
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof(bits));
    if (std::isnan(narrow)) {
        return 0x7fc0;
    }
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class T> T *At(const atb::Tensor &tensor, uint64_t index)
{
    void *data = tensor.deviceData != nullptr ? tensor.deviceData : tensor.hostData;
    return static_cast<T *>(data) + index;
}
} // namespace

double Get(const atb::Tensor &tensor, uint64_t index)
{
    switch (tensor.desc.dtype) {
        case ACL_FLOAT:
            return *At<float>(tensor, index);
        case ACL_FLOAT16:
            return FromHalf(*At<uint16_t>(tensor, index));
        case ACL_BF16:
            return FromBrain(*At<uint16_t>(tensor, index));
        case ACL_INT8:
            return *At<int8_t>(tensor, index);
        case ACL_UINT8:
        case ACL_BOOL:
            return *At<uint8_t>(tensor, index);
        case ACL_INT16:
            return *At<int16_t>(tensor, index);
        case ACL_INT32:
            return *At<int32_t>(tensor, index);
        case ACL_INT64:
            return static_cast<double>(*At<int64_t>(tensor, index));
        case ACL_DOUBLE:
            return *At<double>(tensor, index);
        default:
            return NAN;
    }
}

void Set(const atb::Tensor &tensor, uint64_t index, double value)
{
    switch (tensor.desc.dtype) {
        case ACL_FLOAT:
            *At<float>(tensor, index) = static_cast<float>(value);
            break;
        case ACL_FLOAT16:
            *At<uint16_t>(tensor, index) = ToHalf(value);
            break;
        case ACL_BF16:
            *At<uint16_t>(tensor, index) = ToBrain(value);
            break;
        case ACL_INT8:
            *At<int8_t>(tensor, index) = static_cast<int8_t>(std::fmin(std::fmax(std::nearbyint(value), -128), 127));
            break;
        case ACL_INT32:
            *At<int32_t>(tensor, index) = static_cast<int32_t>(value);
            break;
        case ACL_INT64:
            *At<int64_t>(tensor, index) = static_cast<int64_t>(value);
            break;
        case ACL_DOUBLE:
            *At<double>(tensor, index) = value;
            break;
        default:
            break;
    }
}
} // namespace standin
