// A depthwise 3x3 that slides along one axis (slide.py). PAIRS: two bytes are multiplied at once; else one number at a time, for
// cores without the DSP extension. STRIDE is along the axis. The row itself is slide_row.h, once with three bytes across, once with
// two, where the first or last is outside.

#if PAIRS
#define LOAD_TWO pair = ig_pkhbt(x[0], x[down]);
#define OUTSIDE_TWO pair = both;
#define TWO_TAPS_0(sum) ig_smlad(pair, p0, sum)
#define TWO_TAPS_1(sum) ig_smlad(pair, p1, sum)
#define TWO_TAPS_2(sum) ig_smlad(pair, p2, sum)
#define THREE_TAPS_0(sum) ig_smlabb(third, q, ig_smlad(pair, p0, sum))
#define THREE_TAPS_1(sum) ig_smlabt(third, q, ig_smlad(pair, p1, sum))
#define THREE_TAPS_2(sum) ig_smlabb(third, last, ig_smlad(pair, p2, sum))
#else
#define LOAD_TWO \
    first = x[0]; \
    second = x[down];
#define OUTSIDE_TWO first = second = zero;
#define TWO_TAPS_0(sum) sum + first * a0 + second * b0
#define TWO_TAPS_1(sum) sum + first * a1 + second * b1
#define TWO_TAPS_2(sum) sum + first * a2 + second * b2
#define THREE_TAPS_0(sum) sum + first * a0 + second * b0 + third * c0
#define THREE_TAPS_1(sum) sum + first * a1 + second * b1 + third * c1
#define THREE_TAPS_2(sum) sum + first * a2 + second * b2 + third * c2
#endif

/* One row of a depthwise 3x3 for all channels, stride STRIDE along it: `count` results from positions `step` apart, with three
 * bytes `down` apart at each. `before`, `after`: the first, the last position is outside. `missing`: 1 the first byte across is
 * outside, 2 the last. */
IG_ROUTINE void NAME(const X_TYPE *image, ptrdiff_t step, ptrdiff_t down, Y_TYPE *to, ptrdiff_t y_step,
    ptrdiff_t count, ptrdiff_t before, ptrdiff_t after, ptrdiff_t missing, ptrdiff_t zero_point, ptrdiff_t channels,
    const int32_t *record)
{
#if PAIRS
    const int32_t zero = (int32_t)zero_point, both = ig_pkhbt(zero, zero);
#else
    const int32_t zero = (int32_t)zero_point;
#endif
    for (ptrdiff_t c = 0; c < channels; c++, image++, to++, record += 8) {
        const X_TYPE *x = image;
        Y_TYPE *y = to;
#if PAIRS
        int32_t p0 = record[0], p1 = record[1], p2 = record[2], pair;
        const int32_t q = record[3], last = record[4];
#else
        int32_t a0 = (int16_t)record[0], b0 = record[0] >> 16, a1 = (int16_t)record[1], b1 = record[1] >> 16;
        int32_t a2 = (int16_t)record[2], b2 = record[2] >> 16, first, second;
        const int32_t last = record[4], c0 = (int16_t)record[3], c1 = record[3] >> 16, c2 = (int16_t)last;
#endif
        const int32_t multiplier = record[6], offset = record[7], right = last >> 16;
#if STRIDE == 1
        int32_t start = record[5], done, new, next, third;
#else
        int32_t start = record[5], done, new, third;
#endif
        if (missing == 0) {
#define LOAD \
    LOAD_TWO \
    third = x[2 * down]; \
    x += step;
#define OUTSIDE \
    OUTSIDE_TWO \
    third = zero;
#define TAPS_0(sum) THREE_TAPS_0(sum)
#define TAPS_1(sum) THREE_TAPS_1(sum)
#define TAPS_2(sum) THREE_TAPS_2(sum)
            #include "slide_row.h"
            continue;
        }
#if PAIRS
        if (missing == 1) { /* taps 1 and 2 are there */
            start = ig_smlabb(zero, p0, ig_smlabb(zero, p1, ig_smlabb(zero, p2, start)));
            p0 = ig_pkhbt(p0 >> 16, q);
            p1 = ig_pkhbt(p1 >> 16, q >> 16);
            p2 = ig_pkhbt(p2 >> 16, last);
        } else {
            start = ig_smlabb(zero, q, ig_smlabt(zero, q, ig_smlabb(zero, last, start)));
        }
#else
        if (missing == 1) { /* taps 1 and 2 are there */
            start += zero * (a0 + a1 + a2);
            a0 = b0, b0 = c0, a1 = b1, b1 = c1, a2 = b2, b2 = c2;
        } else {
            start += zero * (c0 + c1 + c2);
        }
#endif
#define LOAD \
    LOAD_TWO \
    x += step;
#define OUTSIDE OUTSIDE_TWO
#define TAPS_0(sum) TWO_TAPS_0(sum)
#define TAPS_1(sum) TWO_TAPS_1(sum)
#define TAPS_2(sum) TWO_TAPS_2(sum)
        #include "slide_row.h"
    }
}
