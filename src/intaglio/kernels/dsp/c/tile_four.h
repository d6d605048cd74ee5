// The sums of tile.c for four columns. Weights of a pair: the first channel's in e; the second's, or both channels', in w0.

#if JOINED
#define WEIGHTS \
    "ldr %[w0], [%[w]], #4\n\t" \
    "sxtb16 %[e], %[w0]\n\t"
#elif APART
#define WEIGHTS \
    "ldr %[w0], [%[w]], #4\n\t" \
    "sxtb16 %[e], %[w0]\n\t" \
    "sxtb16 %[w0], %[w0], ror #8\n\t"
#else
#define WEIGHTS "ldrd %[e], %[w0], [%[w]], #8\n\t"
#endif
#define PAIR_OF_EACH \
    WEIGHTS \
    "ldrd %[x], %[z], [%[a]], #8\n\t" \
    "smlad %[r0], %[w0], %[x], %[r0]\n\t" \
    "smlad %[s0], %[e], %[x], %[s0]\n\t" \
    "smlad %[r1], %[w0], %[z], %[r1]\n\t" \
    "smlad %[s1], %[e], %[z], %[s1]\n\t" \
    "ldrd %[x], %[z], [%[a]], #8\n\t" \
    "smlad %[r2], %[w0], %[x], %[r2]\n\t" \
    "smlad %[s2], %[e], %[x], %[s2]\n\t" \
    "smlad %[r3], %[w0], %[z], %[r3]\n\t" \
    "smlad r7, %[e], %[z], r7\n\t"

/* Sums, weights, columns and pointers need every register. Compilers do not give r7 away, since it may be the frame pointer, so
 * it is borrowed here: it waits in the float register `keep` and holds the fourth sum, which comes and goes in `x`.
 * The end of the loop is kept in a float register too. */
register const int16_t *a IG_PIN("r1") = cols;
register uint32_t w0 IG_PIN("r2");
register uint32_t e IG_PIN("r3");
register uint32_t z IG_PIN("lr");
float keep;
__asm__ volatile(
    "vmov %[keep], r7\n\t"
    "mov r7, %[x]\n\t"
    "1:\n\t"
    PAIR_OF_EACH
    PAIR_OF_EACH
    PAIR_OF_EACH
    PAIR_OF_EACH
    "vmov %[x], %[end]\n\t"
    "cmp %[a], %[x]\n\t"
    "bne 1b\n\t"
    "mov %[x], r7\n\t"
    "vmov r7, %[keep]"
    : [s0] "+r"(s0), [s1] "+r"(s1), [s2] "+r"(s2), [x] "+r"(s3), [r0] "+r"(r0), [r1] "+r"(r1), [r2] "+r"(r2), [r3] "+r"(r3),
      [w] "+r"(w), [a] "+r"(a), [w0] "=&r"(w0), [e] "=&r"(e), [z] "=&r"(z), [keep] "=&t"(keep)
    : [end] "t"(ig_as_float((int32_t)(intptr_t)end)) : "cc", "memory");
