/* The behaviour of the NPU: what a list of commands does, and how many cycles it takes.
 *
 * Two engines work at the same time, each on its commands in order: DMA (load, store, fill) and the array (conv, depthwise, add).
 * A command begins when its engine is free and when the banks of the scratchpad that it touches are: those it writes must not be
 * in use, those it reads must have been written. */
#ifndef EXAMPLE_NPU_MODEL_H
#define EXAMPLE_NPU_MODEL_H

#include <stdint.h>

#define NPU_MAGIC 0x5055504eu /* "NPUP": the first word of a list */
#define NPU_SCRATCHPAD_BYTES 32768u
#define NPU_BANK_BYTES 1024u
#define NPU_WORDS 16u /* of a command */
#define NPU_LANES 16u

enum { NPU_LOAD = 1, NPU_STORE = 2, NPU_FILL = 3, NPU_CONV = 4, NPU_DEPTHWISE = 5, NPU_ADD = 6 };
enum { NPU_OK = 0, NPU_BAD_PROGRAM = 1, NPU_BAD_ADDRESS = 2 };

/* A transfer: `planes` x `rows` runs of `bytes`, so far apart in memory and in the scratchpad. `base` is 0 for constants, 1 and 2
 * for inputs, 3 for the output. */
typedef struct {
    uint32_t base, offset;
    uint32_t planes, plane_stride, plane_pitch; /* stride in memory, pitch in the scratchpad */
    uint32_t rows, row_stride, row_pitch;
    uint32_t bytes;
} npu_block;

/* How the NPU reaches memory. `move` returns 0, or anything else if it fails. */
typedef struct {
    int (*move)(void *context, int to_memory, const npu_block *block, uint8_t *scratchpad);
    void *context;
} npu_memory;

/* Returns NPU_OK or an error; `cycles` is what it took. */
int npu_model_run(const uint32_t *program, const npu_memory *memory, uint64_t *cycles);

/* The same on plain pointers, by number of the base. */
int npu_model_run_on(const uint32_t *program, const void *constants, const void *in0, const void *in1, void *out, uint64_t *cycles);

#endif
