/* A stand-in for CMSIS-NN. */
#include "arm_nnfunctions.h"
#include "arm_nnsupportfunctions.h"

arm_cmsis_nn_status arm_max_pool_s8(
    const cmsis_nn_context *ctx, const cmsis_nn_pool_params *params, const cmsis_nn_dims *input_dims, const int8_t *input,
    const cmsis_nn_dims *filter_dims, const cmsis_nn_dims *output_dims, int8_t *output)
{
    const cmsis_nn_dims *x = input_dims, *y = output_dims;
    (void)ctx;
    for (int32_t at = 0; at < y->n * y->h * y->w; at++)
        for (int32_t c = 0; c < y->c; c++) {
            const int32_t n = at / (y->h * y->w), top = at / y->w % y->h * params->stride.h - params->padding.h;
            const int32_t left = at % y->w * params->stride.w - params->padding.w;
            int32_t result = INT8_MIN, count = 0;
            for (int32_t row = top; row < top + filter_dims->h; row++)
                for (int32_t column = left; column < left + filter_dims->w; column++) {
                    if (row < 0 || row >= x->h || column < 0 || column >= x->w)
                        continue;
                    const int32_t value = input[((n * x->h + row) * x->w + column) * x->c + c];
                    result = value > result ? value : result;
                    count++;
                }
            if (count == 0)
                return ARM_CMSIS_NN_ARG_ERROR;
            output[at * y->c + c] = (int8_t)arm_nn_within(result, &params->activation);
        }
    return ARM_CMSIS_NN_SUCCESS;
}
