/* A stand-in for CMSIS-NN. */
#include "arm_nnfunctions.h"
#include "arm_nnsupportfunctions.h"

void arm_relu_q7(
    int8_t *data, uint16_t size)
{
    for (uint16_t i = 0; i < size; i++)
        data[i] = data[i] < 0 ? 0 : data[i];
}
