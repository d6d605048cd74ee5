// One column times four channels at a time. s0, r0 are the sums of the first two channels, s1, r1 those of the others, each as in
// tile.c, with JOINED, DOUBLE, SHIFT, REAL and FINISH as there.
//
// BYTES   the column is bytes as they are, not pairs: WIDEN makes numbers of 16 bits of bytes 0 and 2, WIDEN_ODD of bytes 1 and 3
// SHARED  all channels have the same factor: `scale` is that factor, then a start per channel

#if SHARED
#define START(n, own) scale[n]
#define RESULT(n, sum, m, add, shift) y[n] = (Y_TYPE)FINISH(sum, multiplier, offset, right)
#elif REAL
#define START(n, own) (int32_t)(0u - (uint32_t)zero * (uint32_t)scale[own])
#define RESULT(n, sum, m, add, shift) y[n] = (Y_TYPE)FINISH(sum, m, add, x_step)
#else
#define START(n, own) scale[own]
#define RESULT(n, sum, m, add, shift) y[n] = (Y_TYPE)FINISH(sum, m, add, shift)
#endif
#if JOINED
#define SECOND(r, s) (int32_t)((uint32_t)r - (uint32_t)s) >> SHIFT
#define BOTH w0
#define ODD_W0
#define ODD_W1
#else
#define SECOND(r, s) r DOUBLE
#define BOTH ig_sxtb16_odd(w0)
#define ODD_W0 "sxtb16 %[w0], %[w0], ror #8\n\t"
#define ODD_W1 "sxtb16 %[w1], %[w1], ror #8\n\t"
#endif
#if BYTES
#define FOUR_PAIRS 8 /* bytes of the column */
#else
#define FOUR_PAIRS 16
#endif
#if !BYTES
#define COLUMN "ldrd %[x], %[z], [%[a]], #8\n\t"
#elif X_SIGNED
#define COLUMN \
    "ldr %[e], [%[a]], #4\n\t" \
    "sxtb16 %[x], %[e]\n\t" \
    "sxtb16 %[z], %[e], ror #8\n\t"
#else
#define COLUMN \
    "ldr %[e], [%[a]], #4\n\t" \
    "uxtb16 %[x], %[e]\n\t" \
    "uxtb16 %[z], %[e], ror #8\n\t"
#endif
#define TWO_PAIRS \
    COLUMN \
    "ldrd %[w0], %[w1], [%[w]], #8\n\t" \
    "sxtb16 %[e], %[w0]\n\t" \
    ODD_W0 \
    "smlad %[r0], %[w0], %[x], %[r0]\n\t" \
    "smlad %[s0], %[e], %[x], %[s0]\n\t" \
    "sxtb16 %[e], %[w1]\n\t" \
    ODD_W1 \
    "smlad %[r0], %[w1], %[z], %[r0]\n\t" \
    "smlad %[s0], %[e], %[z], %[s0]\n\t" \
    "ldrd %[w0], %[w1], [%[w]], #8\n\t" \
    "sxtb16 %[e], %[w0]\n\t" \
    ODD_W0 \
    "smlad %[r1], %[w0], %[x], %[r1]\n\t" \
    "smlad %[s1], %[e], %[x], %[s1]\n\t" \
    "sxtb16 %[e], %[w1]\n\t" \
    ODD_W1 \
    "smlad %[r1], %[w1], %[z], %[r1]\n\t" \
    "smlad %[s1], %[e], %[z], %[s1]\n\t"

/* Channels four by four, times one column of `pairs` pairs. */
IG_ROUTINE void NAME(const X_TYPE *column, const int8_t *w, const int32_t *scale, Y_TYPE *y, ptrdiff_t pairs,
#if REAL
    ptrdiff_t outs, int32_t zero, float x_step)
#else
    ptrdiff_t outs)
#endif
{
#if BYTES
    const X_TYPE *const end = column + 4 * pairs / 2;
#else
    const X_TYPE *const end = column + 2 * pairs;
#endif
#if SHARED
    const int32_t multiplier = scale[0], offset = scale[1], right = scale[2];
    scale += 3;
    for (ptrdiff_t o = 0; o < outs; o += 4, scale += 4, y += 4) {
#else
    for (ptrdiff_t o = 0; o < outs; o += 4, scale += 16, y += 4) {
#endif
        int32_t s0 = START(0, 0), r0 = START(1, 4), s1 = START(2, 8), r1 = START(3, 12);
        const X_TYPE *a = column;
#ifdef IG_DSP
        uint32_t w0, w1, e, x, z;
        __asm__ volatile(
            "sub %[e], %[end], %[a]\n\t"
            "tst %[e], %[four]\n\t"
            "bne 2f\n"
            "1:\n\t"
            TWO_PAIRS
            TWO_PAIRS
            "2:\n\t" /* where they are no multiple of eight */
            TWO_PAIRS
            TWO_PAIRS
            "cmp %[a], %[end]\n\t"
            "bne 1b"
            : [s0] "+r"(s0), [r0] "+r"(r0), [s1] "+r"(s1), [r1] "+r"(r1), [w] "+r"(w), [a] "+r"(a), [w0] "=&r"(w0),
              [w1] "=&r"(w1), [e] "=&r"(e), [x] "=&r"(x), [z] "=&r"(z)
            : [end] "r"(end), [four] "i"(FOUR_PAIRS) : "cc", "memory");
#else
        for (; a != end; a += 4) {
            for (int i = 0; i < 4; i++, w += 4) {
#if BYTES
                const int32_t w0 = ig_word(w), e = ig_sxtb16(w0), both = BOTH, x = i % 2 == 0 ? WIDEN(ig_word(a)) : WIDEN_ODD(ig_word(a));
#else
                const int32_t w0 = ig_word(w), e = ig_sxtb16(w0), both = BOTH, x = ig_word(a + 2 * (i % 2));
#endif
                if (i < 2) {
                    s0 = ig_smlad(e, x, s0);
                    r0 = ig_smlad(both, x, r0);
                } else {
                    s1 = ig_smlad(e, x, s1);
                    r1 = ig_smlad(both, x, r1);
                }
            }
        }
#endif
        RESULT(0, s0 DOUBLE, scale[1], scale[2], scale[3]);
        if (o + 1 == outs)
            break;
        RESULT(1, SECOND(r0, s0), scale[5], scale[6], scale[7]);
        if (o + 2 == outs)
            break;
        RESULT(2, s1 DOUBLE, scale[9], scale[10], scale[11]);
        if (o + 3 == outs)
            break;
        RESULT(3, SECOND(r1, s1), scale[13], scale[14], scale[15]);
    }
}
