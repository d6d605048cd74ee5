/* A stand-in for CMSIS-NN. */
#include "arm_nnfunctions.h"
#include "arm_nnsupportfunctions.h"

int32_t arm_avgpool_s8_get_buffer_size(
    const int output_x, const int ch_src)
{
    (void)output_x;
#if defined(ARM_MATH_DSP) && !defined(ARM_MATH_MVEI)
    return 4 * ch_src; /* a sum for each channel */
#else
    (void)ch_src;
    return 0;
#endif
}
