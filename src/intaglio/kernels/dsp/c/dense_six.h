// The sixes of dense_six.c. Registers: r0 weights, r1 column, r2 to r4 weights of a pair and six channels, r5 and r6 numbers of two
// pairs, r7 end of the column, r8 to r12 and lr sums, of the first channel and of both in turn. All else waits in float registers.
// Loads in a row pipeline, and so do those of an LDM: nine cycles for four numbers and their 24 weights.

#if !BYTES
#define COLUMN \
    "ldr r5, [r1, #4]\n\t" \
    "ldr r6, [r1], #8\n\t"
#define TAKE
#elif X_SIGNED
#define COLUMN "ldr r5, [r1], #4\n\t"
#define TAKE \
    "sxtb16 r6, r5\n\t" \
    "sxtb16 r5, r5, ror #8\n\t"
#else
#define COLUMN "ldr r5, [r1], #4\n\t"
#define TAKE \
    "uxtb16 r6, r5\n\t" \
    "uxtb16 r5, r5, ror #8\n\t"
#endif
#define PAIR_OF_EACH(x) \
    "smlad r9, r2, " x ", r9\n\t" \
    "sxtb16 r2, r2\n\t" \
    "smlad r11, r3, " x ", r11\n\t" \
    "sxtb16 r3, r3\n\t" \
    "smlad lr, r4, " x ", lr\n\t" \
    "sxtb16 r4, r4\n\t" \
    "smlad r8, r2, " x ", r8\n\t" \
    "smlad r10, r3, " x ", r10\n\t" \
    "smlad r12, r4, " x ", r12\n\t"
#define TWO_PAIRS \
    COLUMN \
    "ldr r3, [r0, #4]\n\t" \
    "ldr r4, [r0, #8]\n\t" \
    "ldr r2, [r0], #12\n\t" \
    TAKE \
    PAIR_OF_EACH("r6") \
    "ldm r0!, {r2, r3, r4}\n\t" \
    PAIR_OF_EACH("r5")
#if SHARED
#define STARTS \
    "ldm r1!, {r8, r9, r10, r11, r12, lr}\n\t" \
    "vmov %[records], r1\n\t"
#define FACTORS \
    "vmov r2, %[multiplier]\n\t" \
    "vmov r3, %[offset]\n\t" \
    "vmov r4, %[right]\n\t"
#define NEXT_FACTORS(at)
#define NEXT_RECORD
#else
#define STARTS \
    "ldr r8, [r1]\n\t" \
    "ldr r9, [r1, #16]\n\t" \
    "ldr r10, [r1, #32]\n\t" \
    "ldr r11, [r1, #48]\n\t" \
    "ldr r12, [r1, #64]\n\t" \
    "ldr lr, [r1, #80]\n\t"
#define FACTORS "vmov r5, %[records]\n\t"
#define NEXT_FACTORS(at) \
    "ldr r2, [r5, #" at " + 4]\n\t" \
    "ldr r3, [r5, #" at " + 8]\n\t" \
    "ldr r4, [r5, #" at " + 12]\n\t"
#define NEXT_RECORD \
    "add r5, r5, #96\n\t" \
    "vmov %[records], r5\n\t"
#endif
#define BYTE(sum, at) \
    NEXT_FACTORS(at) \
    RESULT_OF(sum, "r2", "r3", "r4", "r6") \
    "strb " sum ", [r1], #1\n\t"
#define FIRST(sum, at) \
    "lsl " sum ", " sum ", #1\n\t" \
    BYTE(sum, at)
#define SECOND(sum, first) \
    "sub " sum ", " sum ", " first "\n\t" \
    "asr " sum ", " sum ", #7\n\t"

register const int8_t *weights IG_PIN("r0") = w;
register Y_TYPE *to IG_PIN("r1") = y;
register const int32_t *record IG_PIN("r2") = scale;
float keep, results, records, left = ig_as_float((int32_t)(outs / 6));
__asm__ volatile(
    "vmov %[keep], r7\n\t"
    "vmov %[results], r1\n\t"
    "vmov %[records], r2\n"
    "1:\n\t" /* six channels */
    "vmov r1, %[records]\n\t"
    STARTS
    "vmov r1, %[column]\n\t"
    "vmov r7, %[end]\n\t"
    "sub r2, r7, r1\n\t"
    "tst r2, %[four]\n\t"
    "bne 3f\n"
    "2:\n\t"
    TWO_PAIRS
    TWO_PAIRS
    "3:\n\t" /* where they are no multiple of eight */
    TWO_PAIRS
    TWO_PAIRS
    "cmp r1, r7\n\t"
    "bne 2b\n\t"
    SECOND("r9", "r8")
    SECOND("r11", "r10")
    SECOND("lr", "r12")
    "vmov r1, %[results]\n\t"
    FACTORS
    FIRST("r8", "0")
    BYTE("r9", "16")
    FIRST("r10", "32")
    BYTE("r11", "48")
    FIRST("r12", "64")
    BYTE("lr", "80")
    NEXT_RECORD
    "vmov r2, %[left]\n\t"
    "subs r2, r2, #1\n\t"
    "vmov %[results], r1\n\t"
    "vmov %[left], r2\n\t"
    "bne 1b\n\t"
    "vmov r2, %[records]\n\t"
    "vmov r7, %[keep]"
    : [weights] "+r"(weights), [to] "+r"(to), [record] "+r"(record), [keep] "=&t"(keep), [results] "=&t"(results),
      [records] "=&t"(records), [left] "+&t"(left)
    : [column] "t"(AS_FLOAT(column)), [end] "t"(AS_FLOAT(column + 2 * pairs)), [four] "i"(8 * sizeof(X_TYPE)),
#if SHARED
      [multiplier] "t"(ig_as_float(multiplier)), [offset] "t"(ig_as_float(offset)), [right] "t"(ig_as_float(right)),
#endif
      [low] "i"(LOW), [high] "i"(HIGH)
    : "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr", "cc", "memory");
