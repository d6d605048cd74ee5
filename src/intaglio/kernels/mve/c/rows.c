// ROWS (2 or 1) rows of bytes times two channels at a time. Bytes without a sign are moved by 128 on their way: the records know.

#if SIGNED
#define LOAD(x) vldrbq_z_s8(x + k, some)
#define BYTE(x) x[k]
#else
#define LOAD(x) vreinterpretq_s8_u8(veorq_u8(vldrbq_z_u8(x + k, some), vdupq_n_u8(0x80)))
#define BYTE(x) (int8_t)(x[k] ^ 0x80)
#endif
#define RESULT(at, sum, m, add, right) y[at] = (Y_TYPE)FINISH(sum DOUBLE, m, add, right)

/* ROWS row(s) of `depth` bytes, times channels two by two. */
IG_ROUTINE void NAME(const int8_t *w, const int32_t *scale, const X_TYPE *x, ptrdiff_t depth, ptrdiff_t x_step,
    ptrdiff_t outs, Y_TYPE *y, ptrdiff_t y_step)
{
    const X_TYPE *const x0 = x;
#if ROWS == 2
    const X_TYPE *const x1 = x + 1 * x_step;
#else
    (void)x_step;
    (void)y_step;
#endif
    for (ptrdiff_t o = 0; o < outs; o += 2, scale += 8, y += 2, w += 2 * depth) {
        const int8_t *const v = w + depth; /* the second channel */
#if ROWS == 2
        int32_t s00 = scale[0], s01 = scale[4], s10 = scale[0], s11 = scale[4];
#else
        int32_t s00 = scale[0], s01 = scale[4];
#endif
#ifdef IG_MVE
        for (ptrdiff_t k = 0; k < depth; k += 16) {
            const mve_pred16_t some = vctp8q((uint32_t)(depth - k));
            const int8x16_t w0 = vldrbq_z_s8(w + k, some), w1 = vldrbq_z_s8(v + k, some);
            const int8x16_t a0 = LOAD(x0);
#if ROWS == 2
            const int8x16_t a1 = LOAD(x1);
#endif
            s00 = vmladavaq_s8(s00, a0, w0);
            s01 = vmladavaq_s8(s01, a0, w1);
#if ROWS == 2
            s10 = vmladavaq_s8(s10, a1, w0);
            s11 = vmladavaq_s8(s11, a1, w1);
#endif
        }
#else
        IG_UNROLL
        for (ptrdiff_t k = 0; k < depth; k++) {
            s00 += BYTE(x0) * w[k];
            s01 += BYTE(x0) * v[k];
#if ROWS == 2
            s10 += BYTE(x1) * w[k];
            s11 += BYTE(x1) * v[k];
#endif
        }
#endif
        RESULT(0 * y_step, s00, scale[1], scale[2], scale[3]);
#if ROWS == 2
        RESULT(1 * y_step, s10, scale[1], scale[2], scale[3]);
#endif
        if (o + 1 < outs) {
            RESULT(0 * y_step + 1, s01, scale[5], scale[6], scale[7]);
#if ROWS == 2
            RESULT(1 * y_step + 1, s11, scale[5], scale[6], scale[7]);
#endif
        }
    }
}
