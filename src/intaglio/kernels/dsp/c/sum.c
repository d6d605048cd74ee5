// The sum of two bytes. BOTH: their steps are equal; else SMALL is the one with the smaller step, which is scaled to that of LARGE.
// s: multiplier, offset and shift of the smaller side, its zero point lifted, minus the zero point of the larger side lifted,
// then multiplier, offset and shift of the sum.

IG_INLINE int32_t NAME(int32_t left, int32_t right, const int32_t *s)
{
#if BOTH
    const int32_t twice = ((left + right) * (1 << 19) + s[4]) * 2;
#else
    const int32_t lifted = SMALL * (1 << 21) - s[3];
    const int32_t scaled = (ig_smmlar(lifted, s[0], s[1]) + (lifted >> 31)) >> s[2];
    const int32_t twice = (scaled + LARGE * (1 << 19) + s[4]) * 2;
#endif
    const int32_t value = SATURATE((ig_smmlar(twice, s[5], s[6]) + (twice >> 31)) >> s[7]);
    #include "clipped.h"
}
