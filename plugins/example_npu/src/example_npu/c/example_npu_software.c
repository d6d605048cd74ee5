/* The NPU in software: the model of its behaviour, called in its place. */
#include "example_npu.h"
#include "example_npu_model.h"

static int failed;
static uint64_t last_cycles;

void example_npu_start(const uint32_t *program, const void *constants, const void *in0, const void *in1, void *out)
{
    failed = npu_model_run_on(program, constants, in0, in1, out, &last_cycles);
}

int example_npu_wait(void)
{
    return failed;
}

uint32_t example_npu_cycles(void)
{
    return (uint32_t)last_cycles;
}
