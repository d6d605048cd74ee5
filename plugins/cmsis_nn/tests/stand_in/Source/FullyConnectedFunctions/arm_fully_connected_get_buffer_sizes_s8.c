/* A stand-in for CMSIS-NN. */
#include "arm_nnfunctions.h"
#include "arm_nnsupportfunctions.h"

int32_t arm_fully_connected_s8_get_buffer_size(
    const cmsis_nn_dims *filter_dims)
{
#if defined(ARM_MATH_MVEI)
    return 4 * filter_dims->c; /* a sum for each output */
#else
    (void)filter_dims;
    return 0;
#endif
}
