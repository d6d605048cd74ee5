// Up to four rows of bytes times one channel at a time; the results of a channel are scaled in one vector. SIGN: negative sums are
// rounded away from zero.

/* `count` rows of `depth` bytes, one to four, times channels one by one. The loop is tail-predicated: its last round has what is left
 * of the rows. Loads and products take turns, since the core overlaps them. */
IG_ROUTINE void NAME(const int8_t *w, const int32_t *scale, const int8_t *x, ptrdiff_t depth, ptrdiff_t x_step, ptrdiff_t outs,
    Y_TYPE *y, ptrdiff_t y_step, ptrdiff_t count)
{
#ifdef IG_MVE
    const int8_t *const x1 = x + (count > 1 ? x_step : 0), *const x2 = x + (count > 2 ? 2 * x_step : 0);
    const int8_t *const x3 = x + (count > 3 ? 3 * x_step : 0);
    const uint32x4_t places = vmulq_n_u32(vidupq_n_u32(0, 1), (uint32_t)y_step);
    const mve_pred16_t some = vctp32q((uint32_t)count);
    for (ptrdiff_t o = 0; o < outs; o++, scale += 4) {
        const int8_t *a = x, *b = x1, *c = x2, *d = x3;
        int32_t s0 = scale[0], s1 = s0, s2 = s0, s3 = s0;
        __asm volatile("wlstp.8 lr, %[depth], 2f\n"
                       "1:\n\t"
                       "vldrb.8 q0, [%[w]], #16\n\t"
                       "vldrb.8 q1, [%[a]], #16\n\t"
                       "vmladava.s8 %[s0], q0, q1\n\t"
                       "vldrb.8 q2, [%[b]], #16\n\t"
                       "vmladava.s8 %[s1], q0, q2\n\t"
                       "vldrb.8 q1, [%[c]], #16\n\t"
                       "vmladava.s8 %[s2], q0, q1\n\t"
                       "vldrb.8 q2, [%[d]], #16\n\t"
                       "vmladava.s8 %[s3], q0, q2\n\t"
                       "letp lr, 1b\n"
                       "2:"
                       : [s0] "+Te"(s0), [s1] "+Te"(s1), [s2] "+Te"(s2), [s3] "+Te"(s3), [w] "+r"(w), [a] "+r"(a), [b] "+r"(b),
                         [c] "+r"(c), [d] "+r"(d)
                       : [depth] "r"(depth)
                       : "d0", "d1", "d2", "d3", "d4", "d5", "lr", "memory");
        w -= -depth & 15; /* the last round went on by sixteen */
        int32x4_t value = {s0, s1, s2, s3};
        value = vqrdmulhq_n_s32(value, scale[1]);
#if SIGN
        value = vaddq_s32(value, vshrq_n_s32(value, 31));
#endif
        value = vshlq_r_s32(vaddq_n_s32(value, scale[2]), -scale[3]);
        value = vminq_s32(vmaxq_s32(value, vdupq_n_s32(LOW)), vdupq_n_s32(HIGH));
#if Y_SIGNED
        vstrbq_scatter_offset_p_s32(y + o, places, value, some);
#else
        vstrbq_scatter_offset_p_u32(y + o, places, vreinterpretq_u32_s32(value), some);
#endif
    }
#else
    for (ptrdiff_t r = 0; r < count; r++, x += x_step, y += y_step)
        for (ptrdiff_t o = 0; o < outs; o++) {
            int32_t sum = scale[4 * o];
            for (ptrdiff_t k = 0; k < depth; k++)
                sum += x[k] * w[o * depth + k];
            int32_t value = (int32_t)(((int64_t)sum * scale[4 * o + 1] + (1 << 30)) >> 31);
#if SIGN
            value += value >> 31;
#endif
            value = (value + scale[4 * o + 2]) >> scale[4 * o + 3];
            y[o] = (Y_TYPE)(value < LOW ? LOW : value > HIGH ? HIGH : value);
        }
#endif
}
