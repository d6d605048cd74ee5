// One column times six channels at a time, then two at a time, where weights are JOINED and sums are scaled in a few instructions
// (quick.h). BYTES, WIDEN, WIDEN_ODD and SHARED are as in dense.c.

#include "quick.h"
#if SHARED
#define START(n) scale[n]
#define RESULT(n, sum) y[n] = (Y_TYPE)FINISH(sum, multiplier, offset, right)
#else
#define START(n) scale[4 * (n)]
#define RESULT(n, sum) y[n] = (Y_TYPE)FINISH(sum, scale[4 * (n) + 1], scale[4 * (n) + 2], scale[4 * (n) + 3])
#endif

/* Channels six by six, then two by two, times one column of `pairs` pairs. */
IG_ROUTINE void NAME(const X_TYPE *column, const int8_t *w, const int32_t *scale, Y_TYPE *y, ptrdiff_t pairs, ptrdiff_t outs)
{
#ifdef IG_FLOATS
    #include "dense_six.h"
#else
    const ptrdiff_t sixes = outs / 6 * 6;
#if SHARED
    const int32_t multiplier = scale[0], offset = scale[1], right = scale[2];
    scale += 3;
#endif
    for (ptrdiff_t o = 0; o < outs; o += 2, w += 4 * pairs) {
        int32_t s = START(o), r = START(o + 1);
        const int8_t *from = w;
        const ptrdiff_t step = o < sixes ? 12 : 4;
        if (o < sixes)
            from -= o % 6 * (2 * pairs - 2); /* to the first of these six, and its words */
        for (ptrdiff_t p = 0; p < pairs; p += 2, from += 2 * step) {
#if BYTES
            const int32_t bytes = ig_word(column + 2 * p), x = WIDEN(bytes), z = WIDEN_ODD(bytes);
#else
            const int32_t x = ig_word(column + 2 * p), z = ig_word(column + 2 * p + 2);
#endif
            const int32_t w0 = ig_word(from), w1 = ig_word(from + step);
            r = ig_smlad(w0, x, r);
            s = ig_smlad(ig_sxtb16(w0), x, s);
            r = ig_smlad(w1, z, r);
            s = ig_smlad(ig_sxtb16(w1), z, s);
        }
        RESULT(o, s * 2);
        if (o + 1 < outs) {
            RESULT(o + 1, (int32_t)((uint32_t)r - (uint32_t)s) >> 7);
        }
    }
#endif
}
