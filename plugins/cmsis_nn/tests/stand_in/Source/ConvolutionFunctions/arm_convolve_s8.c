/* A stand-in for CMSIS-NN. */
#include "arm_nnfunctions.h"
#include "arm_nnsupportfunctions.h"

arm_cmsis_nn_status arm_convolve_s8(
    const cmsis_nn_context *ctx, const cmsis_nn_conv_params *params, const cmsis_nn_per_channel_quant_params *quant_params,
    const cmsis_nn_dims *input_dims, const int8_t *input, const cmsis_nn_dims *filter_dims, const int8_t *filter,
    const cmsis_nn_dims *bias_dims, const int32_t *bias, const cmsis_nn_dims *upscale_dims,
    const cmsis_nn_dims *output_dims, int8_t *output)
{
    const cmsis_nn_dims *x = input_dims, *y = output_dims, *k = filter_dims;
    const int32_t pad = -params->input_offset, depth = k->h * k->w * k->c;
    (void)bias_dims;
    (void)upscale_dims;
    if (k->c != x->c)
        return ARM_CMSIS_NN_ARG_ERROR;
    const int32_t size = arm_convolve_wrapper_s8_get_buffer_size(params, input_dims, filter_dims, output_dims);
    arm_nn_spoil(ctx, size);
    for (int32_t at = 0; at < y->n * y->h * y->w; at++)
        for (int32_t o = 0; o < y->c; o++) {
            const int32_t n = at / (y->h * y->w), top = at / y->w % y->h * params->stride.h - params->padding.h;
            const int32_t left = at % y->w * params->stride.w - params->padding.w;
            int32_t sum = bias != NULL ? bias[o] : 0;
            for (int32_t tap = 0; tap < k->h * k->w; tap++) {
                const int32_t row = top + tap / k->w * params->dilation.h, column = left + tap % k->w * params->dilation.w;
                if (row < 0 || row >= x->h || column < 0 || column >= x->w)
                    continue; /* the zero point, less the zero point */
                sum += arm_nn_dot_s8(input + ((n * x->h + row) * x->w + column) * x->c, filter + o * depth + tap * k->c, k->c, -pad, 0);
            }
            sum = arm_nn_requantize(sum, quant_params->multiplier[o], quant_params->shift[o]) + params->output_offset;
            output[at * y->c + o] = (int8_t)arm_nn_within(sum, &params->activation);
        }
    return ARM_CMSIS_NN_SUCCESS;
}
