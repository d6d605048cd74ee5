/* The larger of each of four bytes */
IG_INLINE int32_t NAME(int32_t a, int32_t b)
{
#ifdef IG_DSP
    int32_t result;
#if SIGNED
    __asm__("ssub8 %0, %1, %2\n\tsel %0, %1, %2" : "=&r"(result) : "r"(a), "r"(b) : "cc");
#else
    __asm__("usub8 %0, %1, %2\n\tsel %0, %1, %2" : "=&r"(result) : "r"(a), "r"(b) : "cc");
#endif
    return result;
#else
    uint32_t result = 0;
    for (int i = 0; i < 32; i += 8) {
        const TYPE x = (TYPE)((uint32_t)a >> i), y = (TYPE)((uint32_t)b >> i);
        result |= (uint32_t)(uint8_t)(x > y ? x : y) << i;
    }
    return (int32_t)result;
#endif
}
