// One row of floats times four channels at a time, then the last ones one by one. RELU, ADDED: as in tile.c. The assembly uses no
// float register that a function has to keep.

#include "finish.h"
#define ONE_NUMBER(x, w0, w1, w2, w3) \
    "vfma.f32 s4, " x ", " w0 "\n\t" \
    "vfma.f32 s5, " x ", " w1 "\n\t" \
    "vfma.f32 s6, " x ", " w2 "\n\t" \
    "vfma.f32 s7, " x ", " w3 "\n\t"
#define TWO_NUMBERS(x0, x1) \
    "vldmia %[w]!, {s8-s15}\n\t" \
    ONE_NUMBER(x0, "s8", "s9", "s10", "s11") \
    ONE_NUMBER(x1, "s12", "s13", "s14", "s15")

/* All channels times `depth` numbers. */
IG_ROUTINE void NAME(const float *x, const float *w, const float *bias, ptrdiff_t depth, ptrdiff_t outs,
#if ADDED
    float *y, const float *other)
#else
    float *y)
#endif
{
    ptrdiff_t o = 0;
#ifdef IG_FLOATS
    IG_ROLLED
    for (; o + 4 <= outs; o += 4) {
        register const float *at IG_PIN("r5") = x;
        register float *to IG_PIN("r6") = y + o;
        register const float *start IG_PIN("r8") = bias + o;
        register ptrdiff_t left IG_PIN("r9") = depth;
#if ADDED
        register const float *added IG_PIN("r10") = other + o;
#else
        register const float *added IG_PIN("r10") = start;
#endif
        __asm__ volatile(
            "vldmia r8, {s4-s7}\n\t"
            "subs r9, r9, #4\n\t"
            "blt 2f\n"
            "1:\n\t"
            "vldmia r5!, {s0-s3}\n\t"
            TWO_NUMBERS("s0", "s1")
            "subs r9, r9, #4\n\t"
            TWO_NUMBERS("s2", "s3")
            "bge 1b\n"
            "2:\n\t"
            "adds r9, r9, #4\n\t"
            "beq 4f\n"
            "3:\n\t"
            "vldmia r5!, {s0}\n\t"
            "vldmia %[w]!, {s8-s11}\n\t"
            ONE_NUMBER("s0", "s8", "s9", "s10", "s11")
            "subs r9, r9, #1\n\t"
            "bne 3b\n"
            "4:\n\t"
            LOWEST
            PIXEL("s4", "s5", "s6", "s7")
            : [w] "+r"(w), [at] "+r"(at), [to] "+r"(to), [start] "+r"(start), [left] "+r"(left), [added] "+r"(added)
            :
            : "r1", "r2", "r3", "r4", "r12", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13",
              "s14", "s15", "cc", "memory");
    }
#endif
    IG_ROLLED
    for (ptrdiff_t wide = 4; o < outs; o += wide) {
        wide = outs - o < 4 ? 1 : 4;
        IG_ROLLED
        for (ptrdiff_t c = 0; c < wide; c++) {
            float sum = bias[o + c];
            IG_ROLLED
            for (ptrdiff_t i = 0; i < depth; i++)
                sum += x[i] * w[i * wide + c];
#if ADDED
            sum += other[o + c];
#endif
#if RELU
            sum = sum < 0.0f ? 0.0f : sum;
#endif
            y[o + c] = sum;
        }
        w += depth * wide;
    }
}
