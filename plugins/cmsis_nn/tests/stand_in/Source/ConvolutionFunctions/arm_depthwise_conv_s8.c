/* A stand-in for CMSIS-NN. */
#include "arm_nnfunctions.h"
#include "arm_nnsupportfunctions.h"

arm_cmsis_nn_status arm_depthwise_conv_s8(
    const cmsis_nn_context *ctx, const cmsis_nn_dw_conv_params *params, const cmsis_nn_per_channel_quant_params *quant_params,
    const cmsis_nn_dims *input_dims, const int8_t *input, const cmsis_nn_dims *filter_dims, const int8_t *filter,
    const cmsis_nn_dims *bias_dims, const int32_t *bias, const cmsis_nn_dims *output_dims, int8_t *output)
{
    const cmsis_nn_dims *x = input_dims, *y = output_dims, *k = filter_dims;
    (void)ctx;
    (void)bias_dims;
    if (x->c * params->ch_mult != y->c)
        return ARM_CMSIS_NN_ARG_ERROR;
    for (int32_t at = 0; at < y->n * y->h * y->w; at++)
        for (int32_t o = 0; o < y->c; o++) {
            const int32_t n = at / (y->h * y->w), top = at / y->w % y->h * params->stride.h - params->padding.h;
            const int32_t left = at % y->w * params->stride.w - params->padding.w;
            int32_t sum = bias != NULL ? bias[o] : 0;
            for (int32_t tap = 0; tap < k->h * k->w; tap++) {
                const int32_t row = top + tap / k->w * params->dilation.h, column = left + tap % k->w * params->dilation.w;
                if (row < 0 || row >= x->h || column < 0 || column >= x->w)
                    continue;
                const int8_t *pixel = input + ((n * x->h + row) * x->w + column) * x->c;
                sum += (pixel[o / params->ch_mult] + params->input_offset) * filter[tap * y->c + o];
            }
            sum = arm_nn_requantize(sum, quant_params->multiplier[o], quant_params->shift[o]) + params->output_offset;
            output[at * y->c + o] = (int8_t)arm_nn_within(sum, &params->activation);
        }
    return ARM_CMSIS_NN_SUCCESS;
}
