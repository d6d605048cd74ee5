/* A stand-in for CMSIS-NN. */
#include "arm_nnfunctions.h"
#include "arm_nnsupportfunctions.h"

arm_cmsis_nn_status arm_fully_connected_per_channel_s8(
    const cmsis_nn_context *ctx, const cmsis_nn_fc_params *params, const cmsis_nn_per_channel_quant_params *quant_params,
    const cmsis_nn_dims *input_dims, const int8_t *input, const cmsis_nn_dims *filter_dims, const int8_t *filter,
    const cmsis_nn_dims *bias_dims, const int32_t *bias, const cmsis_nn_dims *output_dims, int8_t *output)
{
    (void)bias_dims;
    for (int32_t n = 0; n < input_dims->n; n++)
        for (int32_t o = 0; o < output_dims->c; o++) {
            const int32_t depth = filter_dims->n;
            const int8_t *row = input + n * depth, *column = filter + o * depth;
#if defined(ARM_MATH_MVEI) /* bias and offset are in the sums that the caller has put into the buffer */
            int32_t sum = ((const int32_t *)ctx->buf)[o] + arm_nn_dot_s8(row, column, depth, 0, params->filter_offset);
            (void)bias;
#else
            int32_t sum = bias != NULL ? bias[o] : 0;
            sum += arm_nn_dot_s8(row, column, depth, params->input_offset, params->filter_offset);
            (void)ctx;
#endif
            sum = arm_nn_requantize(sum, quant_params->multiplier[o], quant_params->shift[o]) + params->output_offset;
            output[n * output_dims->c + o] = (int8_t)arm_nn_within(sum, &params->activation);
        }
    return ARM_CMSIS_NN_SUCCESS;
}
