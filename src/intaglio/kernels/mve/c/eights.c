// Eight channels at a time, as numbers of 16 bits whose products are of 32: those of even channels in one vector, of odd ones in
// another. ROWS and COLS of the window. SIGN: negative sums are rounded away from zero.

#if X_SIGNED
#define LOAD(from) vldrbq_z_s16(from, some)
#else
#define LOAD(from) vreinterpretq_s16_u16(vldrbq_z_u16(from, some))
#endif
#if SIGN
#define ROUNDED(v) vaddq_s32(v, vshrq_n_s32(v, 31))
#else
#define ROUNDED(v) v
#endif
#define SCALED(sum, n) \
    vshlq_s32(vaddq_s32(ROUNDED(vqrdmulhq_s32(sum, vldrwq_s32(scale + 8 + n))), vldrwq_s32(scale + 16 + n)), vldrwq_s32(scale + 24 + n))

#define ADD_TAP(values, weights) \
    { \
        const int16x8_t a = values, b = vldrbq_s16(weights); \
        even = vaddq_s32(even, vmullbq_int_s16(a, b)); \
        odd = vaddq_s32(odd, vmulltq_int_s16(a, b)); \
    }
#if Y_SIGNED
#define PUT(to, value) vstrbq_p_s16(to, value, some)
#else
#define PUT(to, value) vstrbq_p_u16(to, vreinterpretq_u16_s16(value), some)
#endif
#define STORE(to) \
    { \
        const int16x8_t value = vqmovntq_s32(vqmovnbq_s32(vdupq_n_s16(0), SCALED(even, 0)), SCALED(odd, 4)); \
        PUT(to, vminq_s16(vmaxq_s16(value, vdupq_n_s16(LOW)), vdupq_n_s16(HIGH))); \
    }

/* One pixel of a depthwise convolution, all channels. Taps outside of the image read `outside`. Weights [channel / 8][tap][8];
 * scales [channel / 8][start, multiplier, offset, shift to the left][even, odd][4]. */
IG_ROUTINE void NAME(const X_TYPE *x, const X_TYPE *outside, ptrdiff_t top, ptrdiff_t left, ptrdiff_t height, ptrdiff_t width,
    ptrdiff_t channels, ptrdiff_t down, ptrdiff_t across, const int8_t *w, const int32_t *scale, Y_TYPE *y)
{
#ifdef IG_MVE
    if (top >= 0 && top + (ROWS - 1) * down < height && left >= 0 && left + (COLS - 1) * across < width) { /* all taps are inside */
        const ptrdiff_t next = across * channels, next_row = down * width * channels;
        const X_TYPE *first = x + (top * width + left) * channels;
        for (ptrdiff_t c = 0; c < channels; c += 8, first += 8, scale += 32, w += 8 * ROWS * COLS) {
            const mve_pred16_t some = vctp16q((uint32_t)(channels - c));
            int32x4_t even = vldrwq_s32(scale), odd = vldrwq_s32(scale + 4);
            const X_TYPE *row = first;
            IG_UNROLL
            for (ptrdiff_t i = 0; i < ROWS; i++, row += next_row) {
                const X_TYPE *at = row;
                IG_UNROLL
                for (ptrdiff_t j = 0; j < COLS; j++, at += next)
                    ADD_TAP(LOAD(at), w + 8 * (i * COLS + j))
            }
            STORE(y + c)
        }
        return;
    }
#endif
    const X_TYPE *from[ROWS * COLS];
    ptrdiff_t n = 0;
    for (ptrdiff_t i = 0; i < ROWS; i++) {
        const ptrdiff_t h = top + i * down;
        const int below = h >= 0 && h < height;
        const X_TYPE *at = x + (h * width + left) * channels;
        for (ptrdiff_t j = 0; j < COLS; j++, at += across * channels) {
            const ptrdiff_t v = left + j * across;
            from[n++] = below && v >= 0 && v < width ? at : outside;
        }
    }
#ifdef IG_MVE
    for (ptrdiff_t c = 0; c < channels; c += 8, scale += 32, w += 8 * ROWS * COLS) {
        const mve_pred16_t some = vctp16q((uint32_t)(channels - c));
        int32x4_t even = vldrwq_s32(scale), odd = vldrwq_s32(scale + 4);
        for (ptrdiff_t t = 0; t < ROWS * COLS; t++)
            ADD_TAP(LOAD(from[t] + c), w + 8 * t)
        STORE(y + c)
    }
#else
    for (ptrdiff_t c = 0; c < channels; c++) {
        const int32_t *const s = scale + c / 8 * 32 + c % 2 * 4 + c % 8 / 2;
        int32_t sum = s[0];
        for (ptrdiff_t t = 0; t < (ROWS * COLS); t++)
            sum += from[t][c] * w[(c / 8 * (ROWS * COLS) + t) * 8 + c % 8];
        int32_t value = (int32_t)(((int64_t)sum * s[8] + (1 << 30)) >> 31);
#if SIGN
        value += value >> 31;
#endif
        value = (value + s[16]) >> -s[24];
        y[c] = (Y_TYPE)(value < LOW ? LOW : value > HIGH ? HIGH : value);
    }
#endif
}
