/* The NPU on the bus: registers in the address space of the core. */
#include "example_npu.h"

#ifndef EXAMPLE_NPU_BASE
#define EXAMPLE_NPU_BASE 0x5a000000u
#endif

typedef struct {
    uint32_t id;
    uint32_t control; /* 1 starts, 2 gives up */
    uint32_t status;  /* 1 busy, 2 error */
    uint32_t program;
    uint32_t bases[4]; /* constants, first and second input, output */
    uint32_t cycles;
    uint32_t wait; /* a read ends when the work does, and gives the status */
} npu_registers;

#define NPU ((volatile npu_registers *)EXAMPLE_NPU_BASE)

void example_npu_start(const uint32_t *program, const void *constants, const void *in0, const void *in1, void *out)
{
    NPU->program = (uint32_t)(uintptr_t)program;
    NPU->bases[0] = (uint32_t)(uintptr_t)constants;
    NPU->bases[1] = (uint32_t)(uintptr_t)in0;
    NPU->bases[2] = (uint32_t)(uintptr_t)in1;
    NPU->bases[3] = (uint32_t)(uintptr_t)out;
    __asm volatile("" ::: "memory"); /* what the core wrote is there before the NPU reads it */
    NPU->control = 1;
}

int example_npu_wait(void)
{
    const uint32_t status = NPU->wait;

    __asm volatile("" ::: "memory");
    return (status & 2u) != 0;
}

uint32_t example_npu_cycles(void)
{
    return NPU->cycles;
}
