// A row of results of ring.c, four at a time. Per row of the window: pairs of numbers a, b, c .. and the taps 0 and 1 in u, 1 and 2
// in v. QUICK: sums are scaled in a few instructions (quick.h).

#if STRIDE == 1
#define WINDOW_ROW(u_taps, v_taps, at0, at1, at2, at3, at4) \
    "ldr %[a], [%[x], #" at0 "]\n\t" \
    "ldr %[b], [%[x], #" at1 "]\n\t" \
    "ldr %[c], [%[x], #" at2 "]\n\t" \
    "vmov %[u], " u_taps "\n\t" \
    "vmov %[v], " v_taps "\n\t" \
    "smlad %[s0], %[a], %[u], %[s0]\n\t" \
    "smlatb %[s1], %[a], %[u], %[s1]\n\t" \
    "smlad %[s2], %[b], %[u], %[s2]\n\t" \
    "smlatb %[s3], %[b], %[u], %[s3]\n\t" \
    "smlabt %[s0], %[b], %[v], %[s0]\n\t" \
    "smlad %[s1], %[b], %[v], %[s1]\n\t" \
    "smlabt %[s2], %[c], %[v], %[s2]\n\t" \
    "smlad %[s3], %[c], %[v], %[s3]\n\t"
#else
#define WINDOW_ROW(u_taps, v_taps, at0, at1, at2, at3, at4) \
    "ldr %[a], [%[x], #" at0 "]\n\t" \
    "ldr %[b], [%[x], #" at1 "]\n\t" \
    "ldr %[c], [%[x], #" at2 "]\n\t" \
    "vmov %[u], " u_taps "\n\t" \
    "vmov %[v], " v_taps "\n\t" \
    "smlad %[s0], %[a], %[u], %[s0]\n\t" \
    "smlad %[s1], %[b], %[u], %[s1]\n\t" \
    "smlabt %[s0], %[b], %[v], %[s0]\n\t" \
    "ldr %[a], [%[x], #" at3 "]\n\t" \
    "ldr %[b], [%[x], #" at4 "]\n\t" \
    "smlad %[s2], %[c], %[u], %[s2]\n\t" \
    "smlabt %[s1], %[c], %[v], %[s1]\n\t" \
    "smlad %[s3], %[a], %[u], %[s3]\n\t" \
    "smlabt %[s2], %[a], %[v], %[s2]\n\t" \
    "smlabt %[s3], %[b], %[v], %[s3]\n\t"
#endif
#if STRIDE == 1
#define TWO_SUMS(u_taps, v_taps, at0, at1, at2) \
    "ldr %[a], [%[x], #" at0 "]\n\t" \
    "ldr %[b], [%[x], #" at1 "]\n\t" \
    "vmov %[u], " u_taps "\n\t" \
    "vmov %[v], " v_taps "\n\t" \
    "smlad %[s0], %[a], %[u], %[s0]\n\t" \
    "smlatb %[s1], %[a], %[u], %[s1]\n\t" \
    "smlabt %[s0], %[b], %[v], %[s0]\n\t" \
    "smlad %[s1], %[b], %[v], %[s1]\n\t"
#else
#define TWO_SUMS(u_taps, v_taps, at0, at1, at2) \
    "ldr %[a], [%[x], #" at0 "]\n\t" \
    "ldr %[b], [%[x], #" at1 "]\n\t" \
    "ldr %[c], [%[x], #" at2 "]\n\t" \
    "vmov %[u], " u_taps "\n\t" \
    "vmov %[v], " v_taps "\n\t" \
    "smlad %[s0], %[a], %[u], %[s0]\n\t" \
    "smlad %[s1], %[b], %[u], %[s1]\n\t" \
    "smlabt %[s0], %[b], %[v], %[s0]\n\t" \
    "smlabt %[s1], %[c], %[v], %[s1]\n\t"
#endif
#include "quick.h"

#if QUICK
#ifdef IG_FLOATS
int32_t s0, s1, s2, s3, a, b, third;
const int32_t *u = scale, *v = w;
ptrdiff_t j = count;
/* Start, multiplier, offset and shift wait in s0 to s3, taps in s4 to s9 */
__asm__ volatile(
    "vldmia %[u], {s0-s3}\n\t"
    "vldmia %[v], {s4-s9}\n\t"
    "cmp %[j], #2\n\t"
    "ble 4f\n"
    "1:\n\t"
    "vmov %[s0], s0\n\t"
    "mov %[s1], %[s0]\n\t"
    "mov %[s2], %[s0]\n\t"
    "mov %[s3], %[s0]\n\t"
#if LANES == 4
    WINDOW_ROW("s4", "s5", "0", "48", "96", "144", "192")
    WINDOW_ROW("s6", "s7", "16", "64", "112", "160", "208")
    WINDOW_ROW("s8", "s9", "32", "80", "128", "176", "224")
#else
    WINDOW_ROW("s4", "s5", "0", "12", "24", "36", "48")
    WINDOW_ROW("s6", "s7", "4", "16", "28", "40", "52")
    WINDOW_ROW("s8", "s9", "8", "20", "32", "44", "56")
#endif
    "vmov %[a], s1\n\t"
    "vmov %[b], s2\n\t"
    "vmov %[c], s3\n\t"
    "add %[x], %[x], %[next]\n\t"
    RESULT_OF("%[s0]", "%[a]", "%[b]", "%[c]", "%[u]")
    RESULT_OF("%[s1]", "%[a]", "%[b]", "%[c]", "%[u]")
    RESULT_OF("%[s2]", "%[a]", "%[b]", "%[c]", "%[u]")
    RESULT_OF("%[s3]", "%[a]", "%[b]", "%[c]", "%[u]")
    "subs %[j], %[j], #4\n\t"
    "blt 2f\n\t"
    "strb %[s0], [%[y]]\n\t"
    "strb %[s1], [%[y], %[step]]\n\t"
    "add %[y], %[y], %[step], lsl #1\n\t"
    "strb %[s2], [%[y]]\n\t"
    "strb %[s3], [%[y], %[step]]\n\t"
    "add %[y], %[y], %[step], lsl #1\n\t"
    "cmp %[j], #2\n\t"
    "bgt 1b\n\t"
    "cmp %[j], #0\n\t"
    "beq 3f\n"
    "4:\n\t" /* two or one */
    "vmov %[s0], s0\n\t"
    "mov %[s1], %[s0]\n\t"
#if LANES == 4
    TWO_SUMS("s4", "s5", "0", "48", "96")
    TWO_SUMS("s6", "s7", "16", "64", "112")
    TWO_SUMS("s8", "s9", "32", "80", "128")
#else
    TWO_SUMS("s4", "s5", "0", "12", "24")
    TWO_SUMS("s6", "s7", "4", "16", "28")
    TWO_SUMS("s8", "s9", "8", "20", "32")
#endif
    "vmov %[a], s1\n\t"
    "vmov %[b], s2\n\t"
    "vmov %[c], s3\n\t"
    RESULT_OF("%[s0]", "%[a]", "%[b]", "%[c]", "%[u]")
    RESULT_OF("%[s1]", "%[a]", "%[b]", "%[c]", "%[u]")
    "strb %[s0], [%[y]]\n\t"
    "cmp %[j], #2\n\t"
    "blt 3f\n\t"
    "strb %[s1], [%[y], %[step]]\n\t"
    "b 3f\n"
    "2:\n\t" /* three */
    "strb %[s0], [%[y]]\n\t"
    "strb %[s1], [%[y], %[step]]\n\t"
    "add %[y], %[y], %[step], lsl #1\n\t"
    "strb %[s2], [%[y]]\n"
    "3:"
    : [s0] "=&r"(s0), [s1] "=&r"(s1), [s2] "=&r"(s2), [s3] "=&r"(s3), [a] "=&r"(a), [b] "=&r"(b), [c] "=&r"(third),
      [u] "+&r"(u), [v] "+&r"(v), [x] "+&r"(x), [y] "+&r"(y), [j] "+&r"(j)
    : [step] "r"(y_step), [next] "i"(8 * STRIDE * PAIR), [low] "i"(LOW), [high] "i"(HIGH)
    : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "cc", "memory");
continue;
#endif
#endif
const int32_t start = scale[0], multiplier = scale[1], offset = scale[2], right = scale[3];
for (ptrdiff_t left = count; left > 0; left -= 4, x += 2 * STRIDE * PAIR, y += 4 * y_step) {
    int32_t sum0 = start, sum1 = start, sum2 = start, sum3 = start;
    for (int r = 0; r < 3; r++) {
        const int32_t *const at = x + LANES * r;
        const int32_t taps = w[2 * r], later = w[2 * r + 1];
        sum0 = ig_smlabt(at[PAIR], later, ig_smlad(at[0], taps, sum0));
#if STRIDE == 1
        sum1 = ig_smlad(at[PAIR], later, ig_smlabb(at[0] >> 16, taps, sum1));
        sum2 = ig_smlabt(at[2 * PAIR], later, ig_smlad(at[PAIR], taps, sum2));
        sum3 = ig_smlad(at[2 * PAIR], later, ig_smlabb(at[PAIR] >> 16, taps, sum3));
#else
        sum1 = ig_smlabt(at[2 * PAIR], later, ig_smlad(at[PAIR], taps, sum1));
        sum2 = ig_smlabt(at[3 * PAIR], later, ig_smlad(at[2 * PAIR], taps, sum2));
        sum3 = ig_smlabt(at[4 * PAIR], later, ig_smlad(at[3 * PAIR], taps, sum3));
#endif
    }
    y[0] = (Y_TYPE)FINISH(sum0, multiplier, offset, right);
    if (left > 1)
        y[y_step] = (Y_TYPE)FINISH(sum1, multiplier, offset, right);
    if (left > 2)
        y[2 * y_step] = (Y_TYPE)FINISH(sum2, multiplier, offset, right);
    if (left > 3)
        y[3 * y_step] = (Y_TYPE)FINISH(sum3, multiplier, offset, right);
}
