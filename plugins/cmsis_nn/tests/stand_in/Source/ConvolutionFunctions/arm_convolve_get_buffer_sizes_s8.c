/* A stand-in for CMSIS-NN. */
#include "arm_nnfunctions.h"
#include "arm_nnsupportfunctions.h"

int32_t arm_convolve_s8_get_buffer_size(
    const cmsis_nn_dims *input_dims, const cmsis_nn_dims *filter_dims)
{
    const int32_t depth = filter_dims->h * filter_dims->w * input_dims->c;
#if defined(ARM_MATH_MVEI)
    return 4 * ((depth + 15) / 16 * 16); /* four columns */
#else
    return 2 * 2 * ((depth + 3) / 4 * 4); /* two columns of 16 bits */
#endif
}

int32_t arm_convolve_wrapper_s8_get_buffer_size(
    const cmsis_nn_conv_params *params, const cmsis_nn_dims *input_dims, const cmsis_nn_dims *filter_dims,
    const cmsis_nn_dims *output_dims)
{
    const int pointwise = filter_dims->h == 1 && filter_dims->w == 1 && params->padding.h == 0 && params->padding.w == 0;
    (void)output_dims;
    if (pointwise && params->dilation.h == 1 && params->dilation.w == 1)
        return 0;
    return arm_convolve_s8_get_buffer_size(input_dims, filter_dims);
}
