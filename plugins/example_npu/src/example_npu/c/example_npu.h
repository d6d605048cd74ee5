/* The NPU as a program sees it: start a list of commands, go on, wait. */
#ifndef EXAMPLE_NPU_H
#define EXAMPLE_NPU_H

#include <stdint.h>

/* Returns at once; `in1` may be NULL. */
void example_npu_start(const uint32_t *program, const void *constants, const void *in0, const void *in1, void *out);

/* 0 when the work is done, anything else if the NPU reports an error. */
int example_npu_wait(void);

/* Cycles of the NPU for the last list. */
uint32_t example_npu_cycles(void);

#endif
