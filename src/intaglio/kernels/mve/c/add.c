// BOTH: the sides have the same step. Else SMALL is scaled to that of LARGE.

#if SIGNED
#define LOAD(from) vldrbq_z_s32(from + i, some)
#define STORE(value) vstrbq_p_s32(y + i, value, some)
#else
#define LOAD(from) vreinterpretq_s32_u32(vldrbq_z_u32(from + i, some))
#define STORE(value) vstrbq_p_u32(y + i, vreinterpretq_u32_s32(value), some)
#endif

#define SHIFTED(value, add, shift) vshlq_r_s32(vaddq_n_s32(vaddq_s32(value, vshrq_n_s32(value, 31)), add), -shift)

/* The sum of two quantised tensors, four numbers at a time; the record is that of dsp/sums.py. */
IG_ROUTINE void NAME(const TYPE *left, const TYPE *right, TYPE *y, ptrdiff_t count, const int32_t *s)
{
#ifdef IG_MVE
    for (ptrdiff_t i = 0; i < count; i += 4) {
        const mve_pred16_t some = vctp32q((uint32_t)(count - i));
#if BOTH
        int32x4_t sum = vshlq_n_s32(vaddq_s32(LOAD(left), LOAD(right)), 19);
#else
        const int32x4_t small = vqrdmulhq_n_s32(vsubq_n_s32(vshlq_n_s32(LOAD(SMALL), 20), s[3] >> 1), s[0]);
        int32x4_t sum = vaddq_s32(SHIFTED(small, s[1], s[2]), vshlq_n_s32(LOAD(LARGE), 19));
#endif
        sum = vqrdmulhq_n_s32(vaddq_n_s32(sum, s[4]), s[5]);
        sum = SHIFTED(sum, s[6], s[7]);
        STORE(vminq_s32(vmaxq_s32(sum, vdupq_n_s32(LOW)), vdupq_n_s32(HIGH)));
    }
#else
    for (ptrdiff_t i = 0; i < count; i++) {
#if BOTH
        int32_t sum = (left[i] + right[i]) * (1 << 19);
#else
        int32_t small = (int32_t)(((int64_t)(SMALL[i] * (1 << 20) - (s[3] >> 1)) * s[0] + (1 << 30)) >> 31);
        int32_t sum = ((small + (small >> 31) + s[1]) >> s[2]) + LARGE[i] * (1 << 19);
#endif
        sum = (int32_t)(((int64_t)(sum + s[4]) * s[5] + (1 << 30)) >> 31);
        sum = (sum + (sum >> 31) + s[6]) >> s[7];
        y[i] = (TYPE)(sum < LOW ? LOW : sum > HIGH ? HIGH : sum);
    }
#endif
}
