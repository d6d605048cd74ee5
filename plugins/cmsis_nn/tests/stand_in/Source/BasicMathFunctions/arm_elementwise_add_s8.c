/* A stand-in for CMSIS-NN. */
#include "arm_nnfunctions.h"
#include "arm_nnsupportfunctions.h"

arm_cmsis_nn_status arm_elementwise_add_s8(
    const int8_t *input_1_vect, const int8_t *input_2_vect, const int32_t input_1_offset, const int32_t input_1_mult,
    const int32_t input_1_shift, const int32_t input_2_offset, const int32_t input_2_mult, const int32_t input_2_shift,
    const int32_t left_shift, int8_t *output, const int32_t out_offset, const int32_t out_mult, const int32_t out_shift,
    const int32_t out_activation_min, const int32_t out_activation_max, const int32_t block_size)
{
    const cmsis_nn_activation limits = {out_activation_min, out_activation_max};
    for (int32_t i = 0; i < block_size; i++) {
        const int32_t a = (input_1_vect[i] + input_1_offset) * (1 << left_shift);
        const int32_t b = (input_2_vect[i] + input_2_offset) * (1 << left_shift);
        const int32_t sum = arm_nn_requantize(a, input_1_mult, input_1_shift) + arm_nn_requantize(b, input_2_mult, input_2_shift);
        output[i] = (int8_t)arm_nn_within(arm_nn_requantize(sum, out_mult, out_shift) + out_offset, &limits);
    }
    return ARM_CMSIS_NN_SUCCESS;
}
