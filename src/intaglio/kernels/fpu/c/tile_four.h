// Channels four by four of tile.c. Registers: r0 `t`, r1 to r4 numbers of the pixels, r5 what is needed for a moment, r6 taps, r8
// weights of these channels, r9 taps left, r10 pairs of numbers left, r12 weights; s16 to s31 sums, s0 to s15 numbers and weights.

#include "finish.h"
#define ONE_PIXEL(x, w0, w1, w2, w3, sum0, sum1, sum2, sum3) \
    "vfma.f32 " sum0 ", " x ", " w0 "\n\t" \
    "vfma.f32 " sum1 ", " x ", " w1 "\n\t" \
    "vfma.f32 " sum2 ", " x ", " w2 "\n\t" \
    "vfma.f32 " sum3 ", " x ", " w3 "\n\t"
#define FOUR_PIXELS(x0, x1, x2, x3, w0, w1, w2, w3) \
    ONE_PIXEL(x0, w0, w1, w2, w3, "s16", "s17", "s18", "s19") \
    ONE_PIXEL(x1, w0, w1, w2, w3, "s20", "s21", "s22", "s23") \
    ONE_PIXEL(x2, w0, w1, w2, w3, "s24", "s25", "s26", "s27") \
    ONE_PIXEL(x3, w0, w1, w2, w3, "s28", "s29", "s30", "s31")
#define FIRST_OF_TWO \
    "vldmia r1!, {s0-s1}\n\t" \
    "vldmia r2!, {s2-s3}\n\t" \
    "vldmia r3!, {s4-s5}\n\t" \
    "vldmia r4!, {s6-s7}\n\t" \
    "vldmia r12!, {s8-s15}\n\t" \
    FOUR_PIXELS("s0", "s2", "s4", "s6", "s8", "s9", "s10", "s11")
#define SECOND_OF_TWO FOUR_PIXELS("s1", "s3", "s5", "s7", "s12", "s13", "s14", "s15")
#define SAME_STARTS(sum0, sum1, sum2, sum3) \
    "vmov.f32 " sum0 ", s16\n\t" \
    "vmov.f32 " sum1 ", s17\n\t" \
    "vmov.f32 " sum2 ", s18\n\t" \
    "vmov.f32 " sum3 ", s19\n\t"
#if ADDED
#define NEXT_PIXEL \
    "subs r9, r9, #1\n\t" \
    "beq 8f\n\t" \
    "add r6, r6, r8\n\t" \
    "add r10, r10, r8\n\t"
#else
#define NEXT_PIXEL \
    "subs r9, r9, #1\n\t" \
    "beq 8f\n\t" \
    "add r6, r6, r8\n\t"
#endif

t->step = 4 * step;
t->count = count;
/* Into which of the loop's four parts, and how often. An odd number comes first, as the second one of a pair. */
t->way = run % 2 ? (run / 2 % 2 ? 1 : 3) : (run / 2 % 2 ? 2 : 0);
t->twos = (run / 2 + 1) / 2 * 2 + (t->way == 3 ? 2 : 0);
IG_ROLLED
for (; o + 4 <= outs; o += 4) {
    register struct tile *tile IG_PIN("r0") = t;
    t->w = w + all * o;
    t->bias = bias + o;
    t->y = y + o;
#if ADDED
    t->other = other + o;
#endif
    __asm__ volatile(
        "ldr r5, [%[tile], #4]\n\t"
        "vldmia r5, {s16-s19}\n\t"
        SAME_STARTS("s20", "s21", "s22", "s23")
        SAME_STARTS("s24", "s25", "s26", "s27")
        SAME_STARTS("s28", "s29", "s30", "s31")
        "ldr r9, [%[tile], #24]\n\t"
        "ldr r8, [%[tile]]\n\t"
        "add r6, %[tile], #36\n\t"
        "cmp r9, #0\n\t"
        "beq 7f\n"
        "1:\n\t" /* a tap */
        "ldm r6!, {r1, r2, r3, r4, r5}\n\t"
        "ldr r10, [%[tile], #28]\n\t"
        "add r12, r8, r5\n\t"
        "ldr r5, [%[tile], #32]\n\t"
        "tst r5, #1\n\t"
        "beq 2f\n\t"
        "vldmia r1!, {s1}\n\t"
        "vldmia r2!, {s3}\n\t"
        "vldmia r3!, {s5}\n\t"
        "vldmia r4!, {s7}\n\t"
        "vldmia r12!, {s12-s15}\n\t"
        "cmp r5, #1\n\t"
        "beq 4f\n\t"
        "b 6f\n"
        "2:\n\t"
        "cmp r5, #2\n\t"
        "beq 5f\n"
        "3:\n\t"
        FIRST_OF_TWO
        "4:\n\t"
        SECOND_OF_TWO
        "5:\n\t"
        FIRST_OF_TWO
        "6:\n\t"
        SECOND_OF_TWO
        "subs r10, r10, #2\n\t"
        "bne 3b\n\t"
        "subs r9, r9, #1\n\t"
        "bne 1b\n"
        "7:\n\t" /* results */
        LOWEST
        "ldr r6, [%[tile], #12]\n\t"
        "ldr r8, [%[tile], #16]\n\t"
        "ldr r9, [%[tile], #20]\n\t"
        "ldr r10, [%[tile], #8]\n\t"
        PIXEL("s16", "s17", "s18", "s19")
        NEXT_PIXEL
        PIXEL("s20", "s21", "s22", "s23")
        NEXT_PIXEL
        PIXEL("s24", "s25", "s26", "s27")
        NEXT_PIXEL
        PIXEL("s28", "s29", "s30", "s31")
        "8:"
        : [tile] "+r"(tile)
        :
        : "r1", "r2", "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r12", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9",
          "s10", "s11", "s12", "s13", "s14", "s15", "s16", "s17", "s18", "s19", "s20", "s21", "s22", "s23", "s24", "s25", "s26",
          "s27", "s28", "s29", "s30", "s31", "cc", "memory");
}
