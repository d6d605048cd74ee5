// FIRST and LAST two of four weights, each times two words; SPLIT the halves of both sums. SCALE one whole sum as halves_scaled.c does.

#define STEP \
    "ldmia r4!, {r2, r3}\n\t" \
    "muls r2, r5, r2\n\t" \
    "muls r3, r5, r3\n\t"
#define ADD \
    "adds r0, r0, r2\n\t" \
    "adds r1, r1, r3\n\t"
#define FIRST \
    "ldmia r7!, {r6}\n\t" \
    "ldmia r4!, {r0, r1}\n\t" \
    "sxtb r5, r6\n\t" \
    "muls r0, r5, r0\n\t" \
    "muls r1, r5, r1\n\t" \
    "lsls r5, r6, #16\n\t" \
    "asrs r5, r5, #24\n\t" \
    STEP \
    ADD
#define LAST \
    "lsls r5, r6, #8\n\t" \
    "asrs r5, r5, #24\n\t" \
    STEP \
    ADD \
    "asrs r5, r6, #24\n\t" \
    STEP \
    ADD
#define SPLIT \
    "sxth r2, r0\n\t" \
    "subs r0, r0, r2\n\t" \
    "asrs r0, r0, #16\n\t" \
    "add r8, r8, r2\n\t" \
    "add r9, r9, r0\n\t" \
    "sxth r3, r1\n\t" \
    "subs r1, r1, r3\n\t" \
    "asrs r1, r1, #16\n\t" \
    "add r10, r10, r3\n\t" \
    "add r11, r11, r1\n\t"

#define PRODUCT(k, n) (uint32_t)pixels[2 * k + n] * (uint32_t)w[k]
#define HALVES /* 0x8000 was added to both, so that the lower halves have no sign */ \
    s0 += a & 0xffffu; \
    s1 += (int32_t)a >> 16; \
    s2 += b & 0xffffu; \
    s3 += (int32_t)b >> 16;

#if TWICE
#define ROUND "adds r3, r3, r7\n\t"
#define SIGN \
    "asrs r0, r0, #31\n\t" \
    "adds r3, r3, r0\n\t"
#else
#define ROUND
#define SIGN
#endif
#define SCALE(sum) \
    "mov r0, " sum "\n\t" \
    "sxth r1, r0\n\t" \
    "subs r2, r0, r1\n\t" \
    "asrs r2, r2, #16\n\t" \
    "movs r3, r1\n\t" \
    "muls r3, r4, r3\n\t" \
    "asrs r3, r3, #16\n\t" \
    "muls r1, r5, r1\n\t" \
    "adds r3, r3, r1\n\t" \
    "movs r1, r2\n\t" \
    "muls r1, r4, r1\n\t" \
    "adds r3, r3, r1\n\t" \
    ROUND \
    "asrs r3, r3, #15\n\t" \
    "muls r2, r5, r2\n\t" \
    "lsls r2, r2, #1\n\t" \
    "adds r3, r3, r2\n\t" \
    SIGN \
    "add r3, r3, r12\n\t" \
    "asrs r3, r3, r6\n\t" \
    "mov " sum ", r3\n\t"

/* The sums of one channel for four pixels, scaled. */
IG_INLINE void NAME(const int8_t *w, const uint8_t *runs, const int32_t *pixels, const int32_t *end, const int32_t *scale,
    int32_t zero, int32_t *values)
{
    const int32_t right = scale[2] & 31, offset = (1 + 2 * zero) * (1 << (right - 1));
    const uint8_t *run = runs + ((scale[2] & 0x7fffffff) >> 5);
#ifdef IG_THUMB
    /* r0, r1: sums of two pixels each; r8 to r11: whole sums; lr is where the rest is. r7 may be the frame pointer, so it waits
     * there. */
    struct {
        int32_t kept, multiplier, offset, right;
        const uint8_t *run;
        const int32_t *end;
    } rest = {0, scale[1], offset, right, run, end};
    register int32_t s0 __asm__("r0") = scale[0];
    register void *s1 __asm__("r1") = &rest;
    register int32_t s2 __asm__("r2") = scale[2];
    register const int32_t *s3 __asm__("r3") = end;
    register const int32_t *at __asm__("r4") = pixels;
    register int32_t weight __asm__("r5");
    register const int8_t *from __asm__("r6") = w;
    __asm__ volatile(
        ".syntax unified\n\t"
        "mov lr, r1\n\t"
        "str r7, [r1]\n\t"
        "mov r7, r6\n\t"
        "mov r8, r0\n\t"
        "mov r9, r0\n\t"
        "mov r10, r0\n\t"
        "mov r11, r0\n\t"
        "cmp r2, #0\n\t"
        "bge 6f\n\t"
        "b 5f\n\t"
        "6:\n\t"
        "mov r12, r3\n\t"
        "subs r3, r3, r4\n\t" /* an odd number of fours starts in the middle */
        "lsls r3, r3, #26\n\t"
        "bmi 2f\n\t"
        "1:\n\t"
        FIRST
        LAST
        SPLIT
        "2:\n\t"
        FIRST
        LAST
        SPLIT
        "cmp r4, r12\n\t"
        "bne 1b\n\t"
        "mov r2, lr\n\t"
        "ldr r2, [r2, #20]\n\t"
        "cmp r4, r2\n\t"
        "beq 4f\n\t"
        "3:\n\t" /* a four that does not fit */
        FIRST
        SPLIT
        "ldmia r4!, {r0, r1}\n\t"
        "lsls r5, r6, #8\n\t"
        "asrs r5, r5, #24\n\t"
        "muls r0, r5, r0\n\t"
        "muls r1, r5, r1\n\t"
        "asrs r5, r6, #24\n\t"
        STEP
        ADD
        SPLIT
        "mov r2, lr\n\t"
        "ldr r3, [r2, #20]\n\t"
        "cmp r4, r3\n\t"
        "beq 4f\n\t"
        "5:\n\t" /* the next run of fours that fit, which may be empty */
        "mov r2, lr\n\t"
        "ldr r3, [r2, #16]\n\t"
        "ldrb r5, [r3]\n\t"
        "adds r3, r3, #1\n\t"
        "str r3, [r2, #16]\n\t"
        "lsls r5, r5, #5\n\t"
        "beq 3b\n\t"
        "adds r3, r4, r5\n\t"
        "b 6b\n\t"
        "4:\n\t"
#ifndef __thumb2__
        "mov r7, lr\n\t"
        "ldr r5, [r7, #4]\n\t"
        "uxth r4, r5\n\t"
        "lsrs r5, r5, #16\n\t"
        "ldr r6, [r7, #8]\n\t"
        "mov r12, r6\n\t"
        "ldr r6, [r7, #12]\n\t"
        "movs r7, #64\n\t"
        "lsls r7, r7, #8\n\t"
        SCALE("r8")
        SCALE("r9")
        SCALE("r10")
        SCALE("r11")
#endif
        "mov r0, r8\n\t"
        "mov r1, r9\n\t"
        "mov r2, r10\n\t"
        "mov r3, r11\n\t"
        "mov r7, lr\n\t"
        "ldr r7, [r7]"
        : "+l"(s0), "+l"(s1), "+l"(s2), "+l"(s3), "+l"(at), "=l"(weight), "+l"(from)
        : : "r8", "r9", "r10", "r11", "r12", "lr", "cc", "memory");
    values[0] = s0;
    values[1] = (int32_t)(intptr_t)s1;
    values[2] = s2;
    values[3] = (int32_t)(intptr_t)s3;
#else
    int32_t s1 = scale[0], s3 = s1;
    uint32_t s0 = (uint32_t)s1 - 0x1000u * (uint32_t)(end - pixels), s2 = s0; /* 0x8000 for each eight words */
    ptrdiff_t fit = scale[2] < 0 ? *run++ : end - pixels; /* fours that fit, before one that does not */
    for (; pixels != end; pixels += 8, w += 4, fit--) {
        uint32_t a = 0x8000u + PRODUCT(0, 0) + PRODUCT(1, 0), b = 0x8000u + PRODUCT(0, 1) + PRODUCT(1, 1);
        if (fit == 0) {
            HALVES
            s0 -= 0x8000u;
            s2 -= 0x8000u;
            a = 0x8000u;
            b = 0x8000u;
            fit = pixels + 8 == end ? 1 : (ptrdiff_t)*run++ + 1;
        }
        a += PRODUCT(2, 0) + PRODUCT(3, 0);
        b += PRODUCT(2, 1) + PRODUCT(3, 1);
        HALVES
    }
    values[0] = (int32_t)s0;
    values[1] = s1;
    values[2] = (int32_t)s2;
    values[3] = s3;
#endif
#if !defined(IG_THUMB) || defined(__thumb2__) /* a core with long multiplications scales them faster in C */
    for (ptrdiff_t p = 0; p < 4; p++)
        values[p] = SCALED(values[p], scale[1], offset, right);
#endif
}
