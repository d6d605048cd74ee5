// Single instructions of the DSP extension as functions, with their meaning in plain C for any other compiler, for readers and for
// `-O0`. Inline assembly rather than intrinsics: gcc and clang spell them differently, and neither has all of these.
// A program gets those that its routines need: one empty line is between two functions, and none inside.

/* c + low a * low b + high a * high b */
IG_INLINE int32_t ig_smlad(int32_t a, int32_t b, int32_t c)
{
#ifdef IG_DSP
    int32_t result;
    __asm__("smlad %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
#else
    return (int32_t)((uint32_t)c + (uint32_t)((int16_t)a * (int16_t)b) + (uint32_t)((a >> 16) * (b >> 16)));
#endif
}

/* c + low a * low b */
IG_INLINE int32_t ig_smlabb(int32_t a, int32_t b, int32_t c)
{
#ifdef IG_DSP
    int32_t result;
    __asm__("smlabb %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
#else
    return c + (int16_t)a * (int16_t)b;
#endif
}

/* c + low a * high b */
IG_INLINE int32_t ig_smlabt(int32_t a, int32_t b, int32_t c)
{
#ifdef IG_DSP
    int32_t result;
    __asm__("smlabt %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
#else
    return c + (int16_t)a * (b >> 16);
#endif
}

/* bytes 0 and 2, as numbers of 16 bits */
IG_INLINE int32_t ig_sxtb16(int32_t a)
{
#ifdef IG_DSP
    int32_t result;
    __asm__("sxtb16 %0, %1" : "=r"(result) : "r"(a));
    return result;
#else
    return (int32_t)((uint32_t)(uint16_t)(int8_t)a | (uint32_t)(int8_t)(a >> 16) << 16);
#endif
}

/* bytes 1 and 3, as numbers of 16 bits */
IG_INLINE int32_t ig_sxtb16_odd(int32_t a)
{
#ifdef IG_DSP
    int32_t result;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(result) : "r"(a));
    return result;
#else
    return (int32_t)((uint32_t)(uint16_t)(int8_t)(a >> 8) | (uint32_t)(int8_t)(a >> 24) << 16);
#endif
}

/* bytes 0 and 2, without a sign */
IG_INLINE int32_t ig_uxtb16(int32_t a)
{
#ifdef IG_DSP
    int32_t result;
    __asm__("uxtb16 %0, %1" : "=r"(result) : "r"(a));
    return result;
#else
    return a & 0x00ff00ff;
#endif
}

/* bytes 1 and 3, without a sign */
IG_INLINE int32_t ig_uxtb16_odd(int32_t a)
{
#ifdef IG_DSP
    int32_t result;
    __asm__("uxtb16 %0, %1, ror #8" : "=r"(result) : "r"(a));
    return result;
#else
    return (a >> 8) & 0x00ff00ff;
#endif
}

/* two sums of 16 bits, plus bytes 0 and 2 of b */
IG_INLINE int32_t ig_sxtab16(int32_t a, int32_t b)
{
#ifdef IG_DSP
    int32_t result;
    __asm__("sxtab16 %0, %1, %2" : "=r"(result) : "r"(a), "r"(b));
    return result;
#else
    return (int32_t)((((uint32_t)a + (uint32_t)(int8_t)b) & 0xffffu) | (((uint32_t)a >> 16) + (uint32_t)(int8_t)(b >> 16)) << 16);
#endif
}

/* two sums of 16 bits, plus bytes 1 and 3 of b */
IG_INLINE int32_t ig_sxtab16_odd(int32_t a, int32_t b)
{
#ifdef IG_DSP
    int32_t result;
    __asm__("sxtab16 %0, %1, %2, ror #8" : "=r"(result) : "r"(a), "r"(b));
    return result;
#else
    return (int32_t)((((uint32_t)a + (uint32_t)(int8_t)(b >> 8)) & 0xffffu) | (((uint32_t)a >> 16) + (uint32_t)(int8_t)(b >> 24)) << 16);
#endif
}

/* two sums of 16 bits, plus bytes 0 and 2 of b, without a sign */
IG_INLINE int32_t ig_uxtab16(int32_t a, int32_t b)
{
#ifdef IG_DSP
    int32_t result;
    __asm__("uxtab16 %0, %1, %2" : "=r"(result) : "r"(a), "r"(b));
    return result;
#else
    return (int32_t)((((uint32_t)a + (uint8_t)b) & 0xffffu) | (((uint32_t)a >> 16) + (uint8_t)(b >> 16)) << 16);
#endif
}

/* two sums of 16 bits, plus bytes 1 and 3 of b, without a sign */
IG_INLINE int32_t ig_uxtab16_odd(int32_t a, int32_t b)
{
#ifdef IG_DSP
    int32_t result;
    __asm__("uxtab16 %0, %1, %2, ror #8" : "=r"(result) : "r"(a), "r"(b));
    return result;
#else
    return (int32_t)((((uint32_t)a + (uint8_t)(b >> 8)) & 0xffffu) | (((uint32_t)a >> 16) + (uint8_t)(b >> 24)) << 16);
#endif
}

/* low a, and low b above it */
IG_INLINE int32_t ig_pkhbt(int32_t a, int32_t b)
{
#ifdef IG_DSP
    int32_t result;
    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(result) : "r"(a), "r"(b));
    return result;
#else
    return (int32_t)((uint32_t)(uint16_t)a | (uint32_t)b << 16);
#endif
}

/* high b, and high a above it */
IG_INLINE int32_t ig_pkhtb(int32_t a, int32_t b)
{
#ifdef IG_DSP
    int32_t result;
    __asm__("pkhtb %0, %1, %2, asr #16" : "=r"(result) : "r"(a), "r"(b));
    return result;
#else
    return (int32_t)(((uint32_t)a & 0xffff0000u) | ((uint32_t)b >> 16));
#endif
}

/* c + (a * b >> 32) */
IG_INLINE int32_t ig_smmla(int32_t a, int32_t b, int32_t c)
{
#ifdef IG_DSP
    int32_t result;
    __asm__("smmla %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
#else
    return c + (int32_t)(((int64_t)a * b) >> 32);
#endif
}

/* c + (a * b >> 32), rounded */
IG_INLINE int32_t ig_smmlar(int32_t a, int32_t b, int32_t c)
{
#ifdef IG_DSP
    int32_t result;
    __asm__("smmlar %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
#else
    return c + (int32_t)(((int64_t)a * b + INT64_C(2147483648)) >> 32);
#endif
}

/* within -128 and 127 */
IG_INLINE int32_t ig_sat_i8(int32_t a)
{
#ifdef IG_DSP
    int32_t result;
    __asm__("ssat %0, #8, %1" : "=r"(result) : "r"(a));
    return result;
#else
    return a < -128 ? -128 : a > 127 ? 127 : a;
#endif
}

/* within 0 and 255 */
IG_INLINE int32_t ig_sat_u8(int32_t a)
{
#ifdef IG_DSP
    int32_t result;
    __asm__("usat %0, #8, %1" : "=r"(result) : "r"(a));
    return result;
#else
    return a < 0 ? 0 : a > 255 ? 255 : a;
#endif
}

IG_INLINE float ig_as_float(int32_t bits)
{
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

IG_INLINE void ig_put_word(void *p, int32_t bits)
{
    __builtin_memcpy(p, &bits, sizeof bits);
}
