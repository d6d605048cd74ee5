/* A stand-in for CMSIS-NN. */
#include "arm_nnsupportfunctions.h"

int32_t arm_nn_dot_s8(const int8_t *x, const int8_t *w, int32_t count, int32_t x_offset, int32_t w_offset)
{
    int32_t sum = 0;
    for (int32_t i = 0; i < count; i++)
        sum += (x[i] + x_offset) * (w[i] + w_offset);
    return sum;
}
