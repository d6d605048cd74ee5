// LOAD four bytes into lanes of 32 bits, STORE them again; ranges of results are LOW .. HIGH.

#if X_SIGNED
#define LOAD(from) vldrbq_z_s32(from, some)
#else
#define LOAD(from) vreinterpretq_s32_u32(vldrbq_z_u32(from, some))
#endif

/* One pixel of a depthwise convolution, all channels. Weights [tap][channel]; scales: starts, multipliers, shifts left, right. */
IG_ROUTINE void NAME(const X_TYPE *x, ptrdiff_t top, ptrdiff_t left, ptrdiff_t height, ptrdiff_t width,
    ptrdiff_t channels, ptrdiff_t rows, ptrdiff_t cols, ptrdiff_t down, ptrdiff_t across, ptrdiff_t zero, const int8_t *w,
    const int32_t *scale, ptrdiff_t y_zero, Y_TYPE *y)
{
    for (ptrdiff_t c = 0; c < channels; c += 4) {
#ifdef IG_MVE
        const mve_pred16_t some = vctp32q((uint32_t)(channels - c));
        int32x4_t sum = vldrwq_z_s32(scale + c, some);
        for (ptrdiff_t i = 0; i < rows; i++) {
            const ptrdiff_t h = top + i * down;
            for (ptrdiff_t j = 0; j < cols; j++) {
                const ptrdiff_t v = left + j * across;
                const X_TYPE *from = x + (h * width + v) * channels;
                if (h < 0 || h >= height || v < 0 || v >= width)
                    continue;
                sum = vaddq_s32(sum, vmulq_s32(vsubq_n_s32(LOAD(from + c), (int32_t)zero),
                    vldrbq_z_s32(w + (i * cols + j) * channels + c, some)));
            }
        }
        const int32x4_t multiplier = vldrwq_z_s32(scale + channels + c, some);
        const int32x4_t lift = vldrwq_z_s32(scale + 2 * channels + c, some);
        const int32x4_t right = vldrwq_z_s32(scale + 3 * channels + c, some); /* negative */
        int32x4_t value = vqrdmulhq_s32(vshlq_s32(sum, lift), multiplier);
        value = vqaddq_s32(value, vshrq_n_s32(vandq_s32(value, right), 31));
        value = vaddq_n_s32(vrshlq_s32(value, right), (int32_t)y_zero);
        value = vminq_s32(vmaxq_s32(value, vdupq_n_s32(LOW)), vdupq_n_s32(HIGH));
#if Y_SIGNED
        vstrbq_p_s32(y + c, value, some);
#else
        vstrbq_p_u32(y + c, vreinterpretq_u32_s32(value), some);
#endif
#else
        for (ptrdiff_t d = c; d < c + 4 && d < channels; d++) {
            int32_t sum = scale[d];
            for (ptrdiff_t i = 0; i < rows; i++)
                for (ptrdiff_t j = 0; j < cols; j++) {
                    const ptrdiff_t h = top + i * down, v = left + j * across;
                    if (h >= 0 && h < height && v >= 0 && v < width)
                        sum += (x[(h * width + v) * channels + d] - (int32_t)zero) * w[(i * cols + j) * channels + d];
                }
            const int32_t shift = scale[2 * channels + d] + scale[3 * channels + d];
            const int32_t value = ig_scale32_i32(sum, scale[channels + d], shift) + (int32_t)y_zero;
            y[d] = (Y_TYPE)(value < LOW ? LOW : value > HIGH ? HIGH : value);
        }
#endif
    }
}
