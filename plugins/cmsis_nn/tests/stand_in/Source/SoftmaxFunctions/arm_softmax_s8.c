/* A stand-in for CMSIS-NN. */
#include "arm_nnfunctions.h"
#include "arm_nnsupportfunctions.h"

/* exp(a) of a in [-1/4, 0), in 31 bits, by a Taylor series around -1/8 */
static int32_t exp_of_quarter(int32_t a)
{
    const int32_t x = a + (1 << 28), x2 = arm_nn_doubling_high_mult(x, x), x3 = arm_nn_doubling_high_mult(x2, x);
    const int32_t x4 = arm_nn_divide_by_power_of_two(arm_nn_doubling_high_mult(x2, x2), 2);
    const int32_t rest = arm_nn_divide_by_power_of_two(arm_nn_doubling_high_mult(x4 + x3, 715827883) + x2, 1);
    return 1895147668 + arm_nn_doubling_high_mult(1895147668, x + rest);
}

/* exp(a) of a <= 0 with 5 bits before the point, in 31 bits: a quarter at a time, then by the bits of what is left */
static int32_t exp_of_negative(int32_t a)
{
    static const int32_t steps[7] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    const int32_t part = (a & 0xffffff) - (1 << 24), rest = part - a;
    int32_t result = exp_of_quarter(part * 32);
    for (int bit = 0; bit < 7; bit++)
        if (rest & (1 << (24 + bit)))
            result = arm_nn_doubling_high_mult(result, steps[bit]);
    return a == 0 ? INT32_MAX : result;
}

/* 1 / (1 + a) of a in [0, 1), by three steps of Newton's method */
static int32_t one_over_one_plus(int32_t a)
{
    const int64_t sum = (int64_t)a + INT32_MAX;
    const int32_t half = (int32_t)((sum + (sum >= 0 ? 1 : -1)) / 2);
    int32_t x = 1515870810 + arm_nn_doubling_high_mult(half, -1010580540);
    for (int step = 0; step < 3; step++) {
        const int32_t off = (1 << 29) - arm_nn_doubling_high_mult(half, x);
        x += arm_nn_doubling_high_mult(x, off) * 4;
    }
    return x > INT32_MAX / 2 ? INT32_MAX : x * 2;
}

void arm_softmax_s8(
    const int8_t *input, const int32_t num_rows, const int32_t row_size, const int32_t mult, const int32_t shift,
    const int32_t diff_min, int8_t *output)
{
    for (int32_t row = 0; row < num_rows; row++, input += row_size, output += row_size) {
        int32_t most = input[0], sum = 0, zeros = 0;
        for (int32_t i = 1; i < row_size; i++)
            most = input[i] > most ? input[i] : most;
        for (int32_t i = 0; i < row_size; i++)
            if (input[i] - most >= diff_min) {
                const int32_t x = arm_nn_doubling_high_mult((input[i] - most) * (1 << shift), mult);
                sum += arm_nn_divide_by_power_of_two(exp_of_negative(x), 12);
            }
        while (zeros < 32 && (((uint32_t)sum << zeros) & 0x80000000u) == 0)
            zeros++;
        const int32_t scale = one_over_one_plus((int32_t)(((uint32_t)sum << zeros) - 0x80000000u));
        for (int32_t i = 0; i < row_size; i++) {
            output[i] = INT8_MIN;
            if (input[i] - most >= diff_min) {
                const int32_t x = arm_nn_doubling_high_mult((input[i] - most) * (1 << shift), mult);
                const int32_t part = arm_nn_doubling_high_mult(scale, exp_of_negative(x));
                const int32_t result = arm_nn_divide_by_power_of_two(part, 12 - zeros + 23) - 128;
                output[i] = (int8_t)(result > INT8_MAX ? INT8_MAX : result);
            }
        }
    }
}
