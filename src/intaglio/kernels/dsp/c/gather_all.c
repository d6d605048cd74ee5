// Macros as in gather.c. Four bytes of each of four columns are two rows of four pairs; r2 to r5 hold the bytes.

#if SIGNED
#define TAKE "sxtb16 "
#else
#define TAKE "uxtb16 "
#endif
#define FOURS \
    for (; from < x + whole; from += 4, to += PAIR2) \
        for (ptrdiff_t c = 0; c < COLUMNS; c++) { \
            const int32_t four = ig_word(from + c * across); \
            ig_put_word(to + 2 * c, WIDEN(four)); \
            ig_put_word(to + PAIR1 + 2 * c, WIDEN_ODD(four)); \
        }

/* `rows` runs of `length` bytes, `row` apart, as pairs in all COLUMNS columns; columns are `across` bytes apart */
IG_ROUTINE void NAME(const TYPE *x, ptrdiff_t across, ptrdiff_t row, ptrdiff_t rows, ptrdiff_t length, int16_t *to)
{
    const ptrdiff_t whole = length - length % 4;
    for (; rows > 0; rows--, x += row) {
        const TYPE *from = x;
#if COLUMNS == 4
#ifdef IG_DSP
        if (whole > 0) {
            const TYPE *other = from + 2 * across, *const end = from + whole;
            __asm__ volatile(
                "1:\n\t"
                "ldr r3, [%[from], %[across]]\n\t"
                "ldr r2, [%[from]], #4\n\t"
                "ldr r5, [%[other], %[across]]\n\t"
                "ldr r4, [%[other]], #4\n\t"
                TAKE "r8, r2\n\t"
                TAKE "r9, r3\n\t"
                TAKE "r10, r4\n\t"
                TAKE "r11, r5\n\t"
                TAKE "r2, r2, ror #8\n\t"
                TAKE "r3, r3, ror #8\n\t"
                TAKE "r4, r4, ror #8\n\t"
                TAKE "r5, r5, ror #8\n\t"
                "cmp %[from], %[end]\n\t"
                "stmia %[to]!, {r8, r9, r10, r11}\n\t"
                "stmia %[to]!, {r2, r3, r4, r5}\n\t"
                "bne 1b"
                : [from] "+&r"(from), [other] "+&r"(other), [to] "+&r"(to)
                : [across] "r"(across), [end] "r"(end)
                : "r2", "r3", "r4", "r5", "r8", "r9", "r10", "r11", "cc", "memory");
        }
#else
        FOURS
#endif
#else
        FOURS
#endif
        if ((length & 2) != 0) {
            IG_ROLLED
            for (ptrdiff_t c = 0; c < COLUMNS; c++, to += 2)
                ig_put_word(to, ig_pkhbt(from[c * across], from[c * across + 1]));
            from += 2;
        }
        if ((length & 1) != 0)
            for (ptrdiff_t c = 0; c < COLUMNS; c++, to += 2)
                ig_put_word(to, from[c * across]); /* the other number of the pair counts for nothing */
    }
}
