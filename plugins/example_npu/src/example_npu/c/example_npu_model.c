/* The NPU's behaviour in C: for hosts, for the emulator, and for firmware on a chip that has none (a software NPU). */
#include "example_npu_model.h"

#include <string.h>

static uint8_t scratchpad[NPU_SCRATCHPAD_BYTES];

static int32_t word(const uint8_t *at)
{
    int32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static float real(const uint8_t *at)
{
    float value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* The output stage: a rounding high multiply and a rounding shift. */
static int32_t scale_twice(int32_t sum, int32_t multiplier, int32_t shift)
{
    const uint32_t left = shift > 0 ? (uint32_t)shift : 0, right = shift < 0 ? (uint32_t)-shift : 0;
    const int32_t lifted = (int32_t)((uint32_t)sum << left);
    const int64_t product = (int64_t)lifted * multiplier;
    const int64_t nudged = product + (product >= 0 ? (int64_t)1 << 30 : 1 - ((int64_t)1 << 30));
    const int32_t high = lifted == INT32_MIN && multiplier == INT32_MIN ? INT32_MAX : (int32_t)(nudged / ((int64_t)1 << 31));
    const int32_t mask = (int32_t)(((int64_t)1 << right) - 1);
    const int32_t threshold = (mask >> 1) + (high < 0 ? 1 : 0);

    return (high >> right) + ((high & mask) > threshold ? 1 : 0);
}

/* One rounding, half away from zero. */
static int32_t scale_once(int32_t sum, int32_t multiplier, int32_t shift)
{
    const int32_t total = 31 - shift;
    const int64_t product = (int64_t)sum * multiplier + ((int64_t)1 << (total - 1)) - (sum < 0 ? 1 : 0);

    return (int32_t)(product >> total);
}

/* Times a float, rounded half to even. */
static int32_t scale_float(int32_t sum, float multiplier, float bias)
{
    float value = (float)sum * multiplier;
    int32_t whole;

    value = value + bias;
    if (!(value > -4194303.0f))
        value = -4194303.0f;
    if (value > 4194303.0f)
        value = 4194303.0f;
    whole = (int32_t)value;
    value -= (float)whole; /* exact: both are below 2^23 */
    if (value > 0.5f || (value == 0.5f && (whole & 1)))
        whole++;
    if (value < -0.5f || (value == -0.5f && (whole & 1)))
        whole--;
    return whole;
}

static int8_t clamped(int32_t value, int32_t low, int32_t high)
{
    return (int8_t)(value < low ? low : value > high ? high : value);
}

/* Parameters of 16 channels: 16 biases, 16 multipliers, 16 shifts. `mode` 0: twice, 1: once, 2: float, 3: float with such a bias. */
static int8_t scaled(int32_t sum, const uint8_t *parameters, uint32_t lane, uint32_t mode, int32_t y_zero, int32_t low, int32_t high)
{
    const uint8_t *const bias = parameters + 4 * lane, *const factor = bias + 4 * NPU_LANES, *const shift = factor + 4 * NPU_LANES;

    if (mode != 3)
        sum = (int32_t)((uint32_t)sum + (uint32_t)word(bias));
    if (mode == 0)
        sum = scale_twice(sum, word(factor), word(shift));
    else if (mode == 1)
        sum = scale_once(sum, word(factor), word(shift));
    else
        sum = scale_float(sum, real(factor), mode == 3 ? real(bias) : 0.0f);
    return clamped(sum + y_zero, low, high);
}

static int32_t byte_of(uint32_t packed, uint32_t n)
{
    return (int8_t)(uint8_t)(packed >> 8 * n);
}

/* Words of conv and depthwise: 1 input, 2 weights, 3 parameters, 4 output, 5 row pitch of the input, 6 channels, 7 of the output,
 * 8 rows, 9 columns, 10 kernel and strides, 11 dilations and mode, 12 x_zero, y_zero, low, high. */
static uint64_t convolve(const uint32_t *c, int depthwise)
{
    const uint8_t *const input = scratchpad + c[1], *const weights = scratchpad + c[2], *const parameters = scratchpad + c[3];
    uint8_t *const output = scratchpad + c[4];
    const uint32_t channels = c[6], outputs = c[7], rows = c[8], columns = c[9];
    const uint32_t kh = c[10] & 255u, kw = c[10] >> 8 & 255u, sh = c[10] >> 16 & 255u, sw = c[10] >> 24;
    const uint32_t dh = c[11] & 255u, dw = c[11] >> 8 & 255u, mode = c[11] >> 16 & 255u;
    const int32_t x_zero = byte_of(c[12], 0), y_zero = byte_of(c[12], 1), low = byte_of(c[12], 2), high = byte_of(c[12], 3);
    const uint32_t blocks = (outputs + NPU_LANES - 1) / NPU_LANES, depth = depthwise ? 1 : channels;

    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < columns; j++)
            for (uint32_t b = 0; b < blocks; b++) {
                int32_t sums[NPU_LANES] = {0};
                const uint8_t *w = weights + b * kh * kw * depth * NPU_LANES;

                for (uint32_t y = 0; y < kh; y++)
                    for (uint32_t x = 0; x < kw; x++) {
                        const uint8_t *const at = input + (i * sh + y * dh) * c[5] + (j * sw + x * dw) * channels;

                        for (uint32_t k = 0; k < depth; k++, w += NPU_LANES)
                            for (uint32_t lane = 0; lane < NPU_LANES; lane++) {
                                const uint32_t from = depthwise ? b * NPU_LANES + lane : k;

                                if (from < channels)
                                    sums[lane] += ((int32_t)(int8_t)at[from] - x_zero) * (int8_t)w[lane];
                            }
                    }
                for (uint32_t lane = 0; lane < NPU_LANES && b * NPU_LANES + lane < outputs; lane++)
                    output[(i * columns + j) * outputs + b * NPU_LANES + lane] = (uint8_t)scaled(
                        sums[lane], parameters + b * 12 * NPU_LANES, lane, mode, y_zero, low, high);
            }
    return depthwise ? 12 + (uint64_t)rows * columns * blocks * ((kh * kw + 3) / 4)
                     : 12 + (uint64_t)rows * columns * blocks * kh * kw * ((channels + NPU_LANES - 1) / NPU_LANES);
}

/* 1 first, 2 second, 3 output, 4 elements, 5 to 7 multipliers (first, second, sum), 8 their shifts, 9 lift and a sign, 10 zero
 * points of first, second and output, 11 low and high. */
static uint64_t add(const uint32_t *c)
{
    const uint32_t lift = c[9] & 255u, subtract = c[9] >> 8 & 1u;

    for (uint32_t n = 0; n < c[4]; n++) {
        const int32_t a = (int32_t)((uint32_t)((int8_t)scratchpad[c[1] + n] - byte_of(c[10], 0)) << lift);
        const int32_t b = (int32_t)((uint32_t)((int8_t)scratchpad[c[2] + n] - byte_of(c[10], 1)) << lift);
        const int32_t left = scale_twice(a, (int32_t)c[5], byte_of(c[8], 0)), right = scale_twice(b, (int32_t)c[6], byte_of(c[8], 1));
        const int32_t sum = scale_twice(subtract ? left - right : left + right, (int32_t)c[7], byte_of(c[8], 2));

        scratchpad[c[3] + n] = (uint8_t)clamped(sum + byte_of(c[10], 2), byte_of(c[11], 0), byte_of(c[11], 1));
    }
    return 8 + (c[4] + NPU_LANES - 1) / NPU_LANES;
}

/* 1 base, 2 offset, 3 in the scratchpad, 4 planes, 5 their stride, 6 rows, 7 their stride, 8 bytes of a row, 9 and 10 how far
 * apart planes and rows are in the scratchpad. */
static int transfer(const uint32_t *c, const npu_memory *memory, uint64_t *cycles)
{
    const npu_block block = {c[1], c[2], c[4], c[5], c[9], c[6], c[7], c[10], c[8]};

    *cycles = 24 + (uint64_t)c[4] * c[6] * (1 + (c[8] + 7) / 8);
    return memory->move(memory->context, c[0] == NPU_STORE, &block, scratchpad + c[3]) == 0 ? NPU_OK : NPU_BAD_ADDRESS;
}

typedef struct {
    uint64_t ready[NPU_SCRATCHPAD_BYTES / NPU_BANK_BYTES]; /* when what was written last is there */
    uint64_t unused[NPU_SCRATCHPAD_BYTES / NPU_BANK_BYTES]; /* when the last reader is done */
    uint64_t engine[2];
} board;

typedef struct {
    uint32_t at, bytes;
} span;

static uint64_t since(const board *b, span s, int writes, uint64_t start)
{
    for (uint32_t n = s.at / NPU_BANK_BYTES; s.bytes > 0 && n <= (s.at + s.bytes - 1) / NPU_BANK_BYTES; n++) {
        if (b->ready[n] > start)
            start = b->ready[n];
        if (writes && b->unused[n] > start)
            start = b->unused[n];
    }
    return start;
}

static void until(board *b, span s, int writes, uint64_t end)
{
    for (uint32_t n = s.at / NPU_BANK_BYTES; s.bytes > 0 && n <= (s.at + s.bytes - 1) / NPU_BANK_BYTES; n++) {
        uint64_t *const when = writes ? &b->ready[n] : &b->unused[n];

        if (end > *when)
            *when = end;
    }
}

/* What a command reads (up to three spans) and writes (one). Fields are checked here, so that nothing goes beyond the scratchpad. */
static int spans_of(const uint32_t *c, span *reads, span *writes)
{
    uint64_t taken = 0;

    memset(reads, 0, 3 * sizeof *reads);
    memset(writes, 0, sizeof *writes);
    switch (c[0]) {
    case NPU_LOAD:
    case NPU_STORE:
        if (c[4] == 0 || c[6] == 0)
            return NPU_BAD_PROGRAM;
        taken = (c[4] - 1ull) * c[9] + (c[6] - 1ull) * c[10] + c[8];
        *(c[0] == NPU_LOAD ? writes : reads) = (span){c[3], (uint32_t)taken};
        break;
    case NPU_FILL:
        taken = c[2];
        *writes = (span){c[1], c[2]};
        break;
    case NPU_ADD:
        taken = c[4];
        reads[0] = (span){c[1], c[4]};
        reads[1] = (span){c[2], c[4]};
        *writes = (span){c[3], c[4]};
        break;
    case NPU_CONV:
    case NPU_DEPTHWISE: {
        const uint64_t kh = c[10] & 255u, kw = c[10] >> 8 & 255u, sh = c[10] >> 16 & 255u, dh = c[11] & 255u;
        const uint64_t blocks = ((uint64_t)c[7] + NPU_LANES - 1) / NPU_LANES, depth = c[0] == NPU_CONV ? c[6] : 1;
        const uint64_t input = ((c[8] - 1ull) * sh + (kh - 1) * dh + 1) * c[5], weights = blocks * kh * kw * depth * NPU_LANES;
        const uint64_t output = (uint64_t)c[8] * c[9] * c[7];

        taken = input > weights ? input : weights;
        taken = taken > output ? taken : output;
        if (c[8] == 0 || c[9] == 0 || taken > NPU_SCRATCHPAD_BYTES)
            return NPU_BAD_PROGRAM;
        reads[0] = (span){c[1], (uint32_t)input};
        reads[1] = (span){c[2], (uint32_t)weights};
        reads[2] = (span){c[3], (uint32_t)(blocks * 12 * NPU_LANES)};
        *writes = (span){c[4], (uint32_t)output};
        break;
    }
    default:
        return NPU_BAD_PROGRAM;
    }
    if (taken > NPU_SCRATCHPAD_BYTES || writes->at > NPU_SCRATCHPAD_BYTES - writes->bytes)
        return NPU_BAD_PROGRAM;
    for (int n = 0; n < 3; n++)
        if (reads[n].bytes > NPU_SCRATCHPAD_BYTES || reads[n].at > NPU_SCRATCHPAD_BYTES - reads[n].bytes)
            return NPU_BAD_PROGRAM;
    return NPU_OK;
}

int npu_model_run(const uint32_t *program, const npu_memory *memory, uint64_t *cycles)
{
    board b;
    uint64_t end = 0;

    memset(&b, 0, sizeof b);
    if (program[0] != NPU_MAGIC)
        return NPU_BAD_PROGRAM;
    for (uint32_t n = 0; n < program[1]; n++) {
        const uint32_t *const c = program + 2 + n * NPU_WORDS;
        const int array = c[0] == NPU_CONV || c[0] == NPU_DEPTHWISE || c[0] == NPU_ADD;
        span reads[3], writes;
        uint64_t start = b.engine[array], taken = 0;
        int error = spans_of(c, reads, &writes);

        if (error != NPU_OK)
            return error;
        for (int i = 0; i < 3; i++)
            start = since(&b, reads[i], 0, start);
        start = since(&b, writes, 1, start);
        switch (c[0]) {
        case NPU_LOAD:
        case NPU_STORE:
            error = transfer(c, memory, &taken);
            break;
        case NPU_FILL:
            memset(scratchpad + c[1], (int)(c[3] & 255u), c[2]);
            taken = 4 + (c[2] + NPU_LANES - 1) / NPU_LANES;
            break;
        case NPU_ADD:
            taken = add(c);
            break;
        default:
            taken = convolve(c, c[0] == NPU_DEPTHWISE);
            break;
        }
        if (error != NPU_OK)
            return error;
        b.engine[array] = start + taken;
        for (int i = 0; i < 3; i++)
            until(&b, reads[i], 0, start + taken);
        until(&b, writes, 1, start + taken);
        end = start + taken > end ? start + taken : end;
    }
    *cycles = end;
    return NPU_OK;
}

typedef struct {
    const uint8_t *read[3];
    uint8_t *write;
} pointers;

static int move(void *context, int to_memory, const npu_block *b, uint8_t *pad)
{
    const pointers *const at = (const pointers *)context;

    if (to_memory ? b->base != 3 : b->base > 2 || at->read[b->base] == NULL)
        return 1;
    for (uint32_t p = 0; p < b->planes; p++)
        for (uint32_t r = 0; r < b->rows; r++) {
            const uint32_t there = b->offset + p * b->plane_stride + r * b->row_stride, here = p * b->plane_pitch + r * b->row_pitch;

            if (to_memory)
                memcpy(at->write + there, pad + here, b->bytes);
            else
                memcpy(pad + here, at->read[b->base] + there, b->bytes);
        }
    return 0;
}

int npu_model_run_on(const uint32_t *program, const void *constants, const void *in0, const void *in1, void *out, uint64_t *cycles)
{
    pointers at = {{(const uint8_t *)constants, (const uint8_t *)in0, (const uint8_t *)in1}, (uint8_t *)out};
    const npu_memory memory = {move, &at};

    return npu_model_run(program, &memory, cycles);
}
