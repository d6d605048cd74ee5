// The quick ways of finish.c in assembly, TWICE, CLIPPED or ONCE: a sum, doubled, becomes a byte. SIGNED: a signed one.

#if TWICE
#define SCALE(sum, multiplier, offset, other) \
    "smmlar " other ", " sum ", " multiplier ", " offset "\n\t" \
    "add " sum ", " other ", " sum ", asr #31\n\t"
#elif CLIPPED
#define SCALE(sum, multiplier, offset, other) "smmlar " sum ", " sum ", " multiplier ", " offset "\n\t"
#else
#define SCALE(sum, multiplier, offset, other) "smmla " sum ", " sum ", " multiplier ", " offset "\n\t"
#endif
#if SIGNED
#define TO_BYTE(sum) "ssat " sum ", #8, " sum "\n\t"
#else
#define TO_BYTE(sum) "usat " sum ", #8, " sum "\n\t"
#endif
#if CLIPS_LOW
#define CLIP_LOW(sum) \
    "cmp " sum ", %[low]\n\t" \
    "it lt\n\t" \
    "movlt " sum ", %[low]\n\t"
#else
#define CLIP_LOW(sum)
#endif
#if CLIPS_HIGH
#define CLIP_HIGH(sum) \
    "cmp " sum ", %[high]\n\t" \
    "it gt\n\t" \
    "movgt " sum ", %[high]\n\t"
#else
#define CLIP_HIGH(sum)
#endif
#define RESULT_OF(sum, multiplier, offset, shift, other) \
    SCALE(sum, multiplier, offset, other) \
    "asr " sum ", " sum ", " shift "\n\t" \
    TO_BYTE(sum) \
    CLIP_LOW(sum) \
    CLIP_HIGH(sum)
