/* A stand-in for CMSIS-NN: fixed-point arithmetic, and which function a convolution is. */
#ifndef ARM_NNSUPPORTFUNCTIONS_H
#define ARM_NNSUPPORTFUNCTIONS_H
#include "Internal/arm_nn_compiler.h"
#include "arm_nn_math_types.h"
#include "arm_nn_types.h"

/* a * b / 2^31, rounded half up */
__STATIC_INLINE int32_t arm_nn_doubling_high_mult(int32_t a, int32_t b)
{
    if (a == INT32_MIN && b == INT32_MIN)
        return INT32_MAX;
    return (int32_t)(((int64_t)a * b + (1 << 30)) >> 31);
}

/* a / 2^exponent, rounded half away from zero */
__STATIC_INLINE int32_t arm_nn_divide_by_power_of_two(int32_t a, int32_t exponent)
{
    const int64_t half = exponent > 0 ? (int64_t)1 << (exponent - 1) : 0;
    return (int32_t)(a >= 0 ? (a + half) >> exponent : -((-(int64_t)a + half) >> exponent));
}

__STATIC_INLINE int32_t arm_nn_requantize(int32_t value, int32_t multiplier, int32_t shift)
{
#if defined(CMSIS_NN_USE_SINGLE_ROUNDING)
    return (int32_t)(((int64_t)value * multiplier + ((int64_t)1 << (30 - shift))) >> (31 - shift));
#else
    const int32_t left = shift > 0 ? shift : 0, right = shift > 0 ? 0 : -shift;
    return arm_nn_divide_by_power_of_two(arm_nn_doubling_high_mult((int32_t)((uint32_t)value << left), multiplier), right);
#endif
}

__STATIC_INLINE int32_t arm_nn_within(int32_t value, const cmsis_nn_activation *limits)
{
    return value < limits->min ? limits->min : value > limits->max ? limits->max : value;
}

/* A buffer belongs to the function that asked for it, to its last byte. */
__STATIC_INLINE void arm_nn_spoil(const cmsis_nn_context *ctx, int32_t size)
{
    if (size > 0)
        memset(ctx->buf, 0x55, (size_t)size);
}

int32_t arm_nn_dot_s8(const int8_t *x, const int8_t *w, int32_t count, int32_t x_offset, int32_t w_offset);
#endif
