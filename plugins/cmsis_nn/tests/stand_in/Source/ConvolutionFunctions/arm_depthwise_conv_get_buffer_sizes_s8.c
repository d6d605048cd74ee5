/* A stand-in for CMSIS-NN. */
#include "arm_nnfunctions.h"
#include "arm_nnsupportfunctions.h"

int32_t arm_depthwise_conv_wrapper_s8_get_buffer_size(
    const cmsis_nn_dw_conv_params *params, const cmsis_nn_dims *input_dims, const cmsis_nn_dims *filter_dims,
    const cmsis_nn_dims *output_dims)
{
    const int32_t taps = filter_dims->h * filter_dims->w;
    const int dilated = params->dilation.h != 1 || params->dilation.w != 1;
    if (input_dims->c != output_dims->c || input_dims->n != 1 || dilated)
        return 0;
#if defined(ARM_MATH_MVEI)
    return 4 * 124 * taps; /* four pixels of as many channels as fit a block */
#elif defined(ARM_MATH_DSP)
    if (filter_dims->h == 3 && filter_dims->w == 3 && params->padding.h <= 1 && params->padding.w <= 1)
        return 0;
    return 2 * input_dims->c * taps; /* one column of 16 bits */
#else
    (void)taps;
    return 0;
#endif
}
