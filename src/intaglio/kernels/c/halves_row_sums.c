// STEP: the number of the row at `place` times a word of four weights. CHANNELS splits r0 (first and third) and r1 (second and fourth).

#if SIGNED
#define BYTE(x) x
#define WIDEN "sxtb r5, r5\n\t"
#else
#define BYTE(x) (x - 128)
#define WIDEN "subs r5, #128\n\t"
#endif
#define STEP(place) \
    "ldmia r7!, {r3}\n\t" \
    "ldrb r5, [r4, " place "]\n\t" \
    WIDEN \
    "mov r2, r12\n\t" \
    "ands r2, r2, r3\n\t" \
    "subs r3, r3, r2\n\t" \
    "lsrs r3, r3, #8\n\t" \
    "add r2, r2, lr\n\t" \
    "add r3, r3, lr\n\t" \
    "muls r2, r5, r2\n\t" \
    "muls r3, r5, r3\n\t" \
    "adds r0, r0, r2\n\t" \
    "adds r1, r1, r3\n\t"
#define NUMBER(k) \
    { \
        const uint32_t number = (uint32_t)BYTE(x[k]), four = words[k]; \
        a += number * (four & 0x00ff00ffu); \
        b += number * (four >> 8 & 0x00ff00ffu); \
        numbers += number; \
    }
#define EMPTY \
    "movs r0, #0\n\t" \
    "movs r1, #0\n\t"
#define CHANNELS \
    "sxth r2, r0\n\t" \
    "subs r0, r0, r2\n\t" \
    "asrs r0, r0, #16\n\t" \
    "add r8, r8, r2\n\t" \
    "add r10, r10, r0\n\t" \
    "sxth r3, r1\n\t" \
    "subs r1, r1, r3\n\t" \
    "asrs r1, r1, #16\n\t" \
    "add r9, r9, r3\n\t" \
    "add r11, r11, r1\n\t"

/* Adds the products of a row and four channels to `sums`; they fit 16 bits for `run` numbers of the row. */
IG_INLINE void NAME(const uint8_t *w, const X_TYPE *x, ptrdiff_t depth, ptrdiff_t run, int32_t *sums)
{
#ifdef IG_THUMB
    /* r8 to r11: whole sums; r12: two bytes of four; lr: -128 twice, as weights are kept without a sign. r6 is where the rest is:
     * r7, which may be the frame pointer, in the place of `w`; the end of the row; the end and length of a run. */
    struct {
        const uint8_t *w;
        const X_TYPE *end, *stop;
        ptrdiff_t run;
    } more = {w, x + depth, x, run};
    register int32_t s0 __asm__("r0") = sums[0];
    register int32_t s1 __asm__("r1") = sums[1];
    register int32_t s2 __asm__("r2") = sums[2];
    register int32_t s3 __asm__("r3") = sums[3];
    register const X_TYPE *at __asm__("r4") = x;
    register int32_t number __asm__("r5");
    register void *rest __asm__("r6") = &more;
    __asm__ volatile(
        ".syntax unified\n\t"
        "ldr r5, [r6]\n\t"
        "str r7, [r6]\n\t"
        "mov r7, r5\n\t"
        "mov r8, r0\n\t"
        "mov r9, r1\n\t"
        "mov r10, r2\n\t"
        "mov r11, r3\n\t"
        "movs r2, #255\n\t"
        "lsls r3, r2, #16\n\t"
        "orrs r2, r2, r3\n\t"
        "mov r12, r2\n\t"
        "movs r2, #128\n\t"
        "lsls r3, r2, #16\n\t"
        "orrs r2, r2, r3\n\t"
        "rsbs r2, r2, #0\n\t"
        "mov lr, r2\n\t"
        "1:\n\t"
        EMPTY
        "ldr r2, [r6, #12]\n\t"
        "cmp r2, #2\n\t"
        "beq 3f\n\t"
        "adds r2, r2, r4\n\t"
        "str r2, [r6, #8]\n\t"
        "2:\n\t"
        STEP("#0")
        STEP("#1")
        STEP("#2")
        STEP("#3")
        "adds r4, #4\n\t"
        "ldr r2, [r6, #8]\n\t"
        "cmp r4, r2\n\t"
        "bne 2b\n\t"
        "b 4f\n\t"
        "3:\n\t"
        STEP("#0")
        STEP("#1")
        "adds r4, #2\n\t"
        "4:\n\t"
        CHANNELS
        "ldr r2, [r6, #4]\n\t"
        "cmp r4, r2\n\t"
        "bne 1b\n\t"
        "mov r0, r8\n\t"
        "mov r1, r9\n\t"
        "mov r2, r10\n\t"
        "mov r3, r11\n\t"
        "ldr r7, [r6]"
        : "+l"(s0), "+l"(s1), "+l"(s2), "+l"(s3), "+l"(at), "=l"(number), "+l"(rest)
        : : "r8", "r9", "r10", "r11", "r12", "lr", "cc", "memory");
    sums[0] = s0;
    sums[1] = s1;
    sums[2] = s2;
    sums[3] = s3;
#else
    int32_t s0 = sums[0], s1 = sums[1], s2 = sums[2], s3 = sums[3];
    const uint32_t *words = (const uint32_t *)(const void *)w;
    for (const X_TYPE *const end = x + depth; x != end;) {
        uint32_t a = 0, b = 0, numbers = 0;
        for (const X_TYPE *const stop = x + run; x != stop; x += 2, words += 2) {
            NUMBER(0)
            NUMBER(1)
        }
        a -= numbers * 0x00800080u; /* as weights are kept without a sign */
        b -= numbers * 0x00800080u;
        s0 += (int16_t)a;
        s2 += (int32_t)(a + 0x8000u) >> 16; /* less the lower half, with its sign */
        s1 += (int16_t)b;
        s3 += (int32_t)(b + 0x8000u) >> 16; /* less the lower half, with its sign */
    }
    sums[0] = s0;
    sums[1] = s1;
    sums[2] = s2;
    sums[3] = s3;
#endif
}
