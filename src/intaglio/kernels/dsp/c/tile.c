// Two channels at a time against COLUMNS (4, 2 or 1) columns. s0 .. s3 are the sums of the first channel, r0 .. r3 those of the
// second; where weights are JOINED, r is the sum of first + 256 * second, and the difference gives the second.
//
// JOINED, APART, WIDE  how the weights of two channels are kept, in WORD bytes per pair (tiles.py)
// PAIR                 numbers from one pair to the next: 2 * COLUMNS
// DOUBLE, SHIFT        `* 2` and 7 where FINISH takes sums doubled, else nothing and 8
// REAL                 results are floats; sums start at minus the zero point times the sum of the weights
// QUICK                sums are scaled in a few instructions (quick.h)

#define AS_FLOAT(pointer) ig_as_float((int32_t)(intptr_t)(pointer))
#include "quick.h"

#if REAL
#define START(n) (int32_t)(0u - (uint32_t)zero * (uint32_t)scale[n])
#define RESULT(at, sum) y[at] = (Y_TYPE)FINISH(sum, m, add, x_step)
#else
#define START(n) scale[n]
#define RESULT(at, sum) y[at] = (Y_TYPE)FINISH(sum, m, add, right)
#endif
#if JOINED
#define SECOND(r, s) (int32_t)((uint32_t)r - (uint32_t)s) >> SHIFT
#else
#define SECOND(r, s) r DOUBLE
#endif

/* Channels two by two, times COLUMNS column(s) of `pairs` pairs; results `step` apart. */
IG_ROUTINE void NAME(const int8_t *weights, const int32_t *scale, const int16_t *cols, ptrdiff_t pairs,
#if REAL
    ptrdiff_t outs, Y_TYPE *y, ptrdiff_t step, int32_t zero, float x_step)
#else
    ptrdiff_t outs, Y_TYPE *y, ptrdiff_t step)
#endif
{
#if COLUMNS == 4 && QUICK
#ifdef IG_FLOATS
    #include "tile_quick.h"
    return;
#endif
#endif
    const int16_t *const end = cols + PAIR * pairs;
#if COLUMNS == 4
    register const int8_t *w IG_PIN("r0") = weights;
#else
    const int8_t *w = weights;
#endif
    for (ptrdiff_t o = 0; o < outs; o += 2, scale += 8, y += 2) {
#if COLUMNS == 4
        register int32_t s0 IG_PIN("r4") = START(0);
        register int32_t s1 IG_PIN("r5") = s0;
        register int32_t s2 IG_PIN("r6") = s0;
        register int32_t s3 IG_PIN("r12") = s0;
        register int32_t r0 IG_PIN("r8") = START(4);
        register int32_t r1 IG_PIN("r9") = r0;
        register int32_t r2 IG_PIN("r10") = r0;
        register int32_t r3 IG_PIN("r11") = r0;
#if QUICK
        #include "tile_plain.h"
#else
#ifdef IG_FLOATS
        #include "tile_four.h"
#else
        #include "tile_plain.h"
#endif
#endif
#else
        int32_t s0 = START(0);
#if COLUMNS == 2
        int32_t s1 = s0;
#endif
        int32_t r0 = START(4);
#if COLUMNS == 2
        int32_t r1 = r0;
#endif
#ifdef IG_DSP
        #include "tile_two.h"
#else
        #include "tile_plain.h"
#endif
#endif
        {
#if REAL
            const int32_t m = scale[1], add = scale[2];
#else
            const int32_t m = scale[1], add = scale[2], right = scale[3];
#endif
            RESULT(0, s0 DOUBLE);
#if COLUMNS > 1
            RESULT(step, s1 DOUBLE);
#endif
#if COLUMNS == 4
            RESULT(2 * step, s2 DOUBLE);
            RESULT(3 * step, s3 DOUBLE);
#endif
        }
        if (o + 1 < outs) {
#if REAL
            const int32_t m = scale[5], add = scale[6];
#else
            const int32_t m = scale[5], add = scale[6], right = scale[7];
#endif
            RESULT(1, SECOND(r0, s0));
#if COLUMNS > 1
            RESULT(1 + step, SECOND(r1, s1));
#endif
#if COLUMNS == 4
            RESULT(1 + 2 * step, SECOND(r2, s2));
            RESULT(1 + 3 * step, SECOND(r3, s3));
#endif
        }
    }
#if COLUMNS == 1
    (void)step;
#endif
}
