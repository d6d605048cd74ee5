// The sums of tile.c for two columns or one. Weights of two pairs: the first channel's in e, one after the other; the second's, or
// both channels', in w0 and w1.

#if JOINED
#define WEIGHTS \
    "ldrd %[w0], %[w1], [%[w]], #8\n\t" \
    "sxtb16 %[e], %[w0]\n\t"
#define NEXT_WEIGHTS "sxtb16 %[e], %[w1]\n\t"
#elif APART
#define WEIGHTS \
    "ldrd %[w0], %[w1], [%[w]], #8\n\t" \
    "sxtb16 %[e], %[w0]\n\t" \
    "sxtb16 %[w0], %[w0], ror #8\n\t"
#define NEXT_WEIGHTS \
    "sxtb16 %[e], %[w1]\n\t" \
    "sxtb16 %[w1], %[w1], ror #8\n\t"
#else
#define WEIGHTS "ldrd %[e], %[w0], [%[w]], #8\n\t"
#define NEXT_WEIGHTS "ldrd %[e], %[w1], [%[w]], #8\n\t"
#endif
#if COLUMNS == 2
#define TWO_PAIRS \
    WEIGHTS \
    "ldrd %[x], %[z], [%[a]], #8\n\t" \
    "smlad %[r0], %[w0], %[x], %[r0]\n\t" \
    "smlad %[s0], %[e], %[x], %[s0]\n\t" \
    "smlad %[r1], %[w0], %[z], %[r1]\n\t" \
    "smlad %[s1], %[e], %[z], %[s1]\n\t" \
    "ldrd %[x], %[z], [%[a]], #8\n\t" \
    NEXT_WEIGHTS \
    "smlad %[r0], %[w1], %[x], %[r0]\n\t" \
    "smlad %[s0], %[e], %[x], %[s0]\n\t" \
    "smlad %[r1], %[w1], %[z], %[r1]\n\t" \
    "smlad %[s1], %[e], %[z], %[s1]\n\t"
#define SUMS [s0] "+r"(s0), [s1] "+r"(s1), [r0] "+r"(r0), [r1] "+r"(r1)
#else
#define TWO_PAIRS \
    WEIGHTS \
    "ldrd %[x], %[z], [%[a]], #8\n\t" \
    "smlad %[r0], %[w0], %[x], %[r0]\n\t" \
    "smlad %[s0], %[e], %[x], %[s0]\n\t" \
    NEXT_WEIGHTS \
    "smlad %[r0], %[w1], %[z], %[r0]\n\t" \
    "smlad %[s0], %[e], %[z], %[s0]\n\t"
#define SUMS [s0] "+r"(s0), [r0] "+r"(r0)
#endif

const int16_t *a = cols;
uint32_t w0;
uint32_t e;
uint32_t z;
uint32_t x;
uint32_t w1;
__asm__ volatile(
    "1:\n\t"
    TWO_PAIRS
    TWO_PAIRS
    "cmp %[a], %[end]\n\t"
    "bne 1b"
    : SUMS,
      [w] "+r"(w), [a] "+r"(a), [w0] "=&r"(w0), [e] "=&r"(e), [z] "=&r"(z), [x] "=&r"(x), [w1] "=&r"(w1)
    : [end] "r"(end) : "cc", "memory");
