#if defined(__ARM_FEATURE_DSP) && defined(__OPTIMIZE__) && !defined(IG_NO_ASSEMBLY)
#define IG_DSP 1
#endif
#if defined(IG_DSP) && defined(__ARM_FP)
#define IG_FLOATS 1 /* float registers to keep numbers in */
#define IG_PIN(name) __asm__(name) /* this register */
#else
#define IG_PIN(name)
#endif
#define IG_ROUTINE static __attribute__((noinline, unused))
#if defined(__OPTIMIZE_SIZE__)
#define IG_UNROLL
#elif defined(__clang__)
#define IG_UNROLL _Pragma("clang loop unroll_count(4)")
#else
#define IG_UNROLL _Pragma("GCC unroll 4")
#endif

/* Four bytes from anywhere */
IG_INLINE int32_t ig_word(const void *p)
{
    int32_t bits;
    __builtin_memcpy(&bits, p, sizeof bits);
    return bits;
}
