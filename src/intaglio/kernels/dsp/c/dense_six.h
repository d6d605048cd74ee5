// The channels of dense_six.c. Registers: r0 column, r1 weights, r2 to r4 weights of a pair and six channels, r5 and r6 numbers of two
// pairs, r7 end of the column, r8 to r12 and lr sums, of the first channel and of both in turn. Float registers keep the rest: s0 and
// s1 the column and its end, s2 r7, s4 the next record, s5 how many channels are left, s6 to s8 the factor that all share, s9 where
// results go. Loads in a row pipeline, and so do those of an LDM: nine cycles for four numbers and their 24 weights.

#if !BYTES
#define COLUMN \
    "ldr r5, [r0, #4]\n\t" \
    "ldr r6, [r0], #8\n\t"
#define TAKE
#elif X_SIGNED
#define COLUMN "ldr r5, [r0], #4\n\t"
#define TAKE \
    "sxtb16 r6, r5\n\t" \
    "sxtb16 r5, r5, ror #8\n\t"
#else
#define COLUMN "ldr r5, [r0], #4\n\t"
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
    "ldr r3, [r1, #4]\n\t" \
    "ldr r4, [r1, #8]\n\t" \
    "ldr r2, [r1], #12\n\t" \
    TAKE \
    PAIR_OF_EACH("r6") \
    "ldm r1!, {r2, r3, r4}\n\t" \
    PAIR_OF_EACH("r5")
#if SHARED
#define FACTOR "vldmia r2!, {s6, s7, s8}\n\t"
#define SIX_STARTS "ldm r2!, {r8, r9, r10, r11, r12, lr}\n\t"
#define TWO_STARTS "ldm r2!, {r8, r9}\n\t"
#define FACTORS \
    "vmov r2, r3, s6, s7\n\t" \
    "vmov r4, r0, s8, s9\n\t"
#define NEXT_FACTORS(at)
#define NEXT_RECORD(bytes)
#else
#define FACTOR
#define SIX_STARTS \
    "ldr r8, [r2]\n\t" \
    "ldr r9, [r2, #16]\n\t" \
    "ldr r10, [r2, #32]\n\t" \
    "ldr r11, [r2, #48]\n\t" \
    "ldr r12, [r2, #64]\n\t" \
    "ldr lr, [r2, #80]\n\t"
#define TWO_STARTS \
    "ldr r8, [r2]\n\t" \
    "ldr r9, [r2, #16]\n\t"
#define FACTORS \
    "vmov r5, s4\n\t" \
    "vmov r0, s9\n\t"
#define NEXT_FACTORS(at) \
    "ldr r2, [r5, #" at " + 4]\n\t" \
    "ldr r3, [r5, #" at " + 8]\n\t" \
    "ldr r4, [r5, #" at " + 12]\n\t"
#define NEXT_RECORD(bytes) \
    "add r5, r5, #" bytes "\n\t" \
    "vmov s4, r5\n\t"
#endif
#define BYTE(sum, at) \
    NEXT_FACTORS(at) \
    RESULT_OF(sum, "r2", "r3", "r4", "r6") \
    "strb " sum ", [r0], #1\n\t"
#define FIRST(sum, at) \
    "lsl " sum ", " sum ", #1\n\t" \
    BYTE(sum, at)
#define SECOND(sum, first) \
    "sub " sum ", " sum ", " first "\n\t" \
    "asr " sum ", " sum ", #7\n\t"

register const X_TYPE *from IG_PIN("r0") = column;
register const int8_t *weights IG_PIN("r1") = w;
register const int32_t *record IG_PIN("r2") = scale;
register Y_TYPE *to IG_PIN("r3") = y;
register const X_TYPE *end IG_PIN("r4") = column + 2 * pairs;
register ptrdiff_t left IG_PIN("r5") = outs;
__asm__ volatile(
    "vmov s2, r7\n\t"
    "vmov s0, s1, r0, r4\n\t"
    FACTOR
    "vmov s9, r3\n"
    "1:\n\t" /* six channels */
    "subs r5, r5, #6\n\t"
    "vmov s5, r5\n\t"
    "vmov r0, r7, s0, s1\n\t"
    SIX_STARTS
    "vmov s4, r2\n\t"
    "sub r2, r7, r0\n\t"
    "tst r2, %[four]\n\t"
    "bne 3f\n"
    "2:\n\t"
    TWO_PAIRS
    TWO_PAIRS
    "3:\n\t" /* where they are no multiple of eight */
    TWO_PAIRS
    TWO_PAIRS
    "cmp r0, r7\n\t"
    "bne 2b\n\t"
    SECOND("r9", "r8")
    SECOND("r11", "r10")
    SECOND("lr", "r12")
    FACTORS
    FIRST("r8", "0")
    BYTE("r9", "16")
    FIRST("r10", "32")
    BYTE("r11", "48")
    FIRST("r12", "64")
    BYTE("lr", "80")
    NEXT_RECORD("96")
    "vmov r2, r5, s4, s5\n\t"
    "vmov s9, r0\n\t"
    "cmp r5, #6\n\t"
    "bge 1b\n\t"
    "cmp r5, #0\n\t"
    "beq 6f\n"
    "4:\n\t" /* two channels, or the last one */
    "vmov s5, r5\n\t"
    "vmov r0, r7, s0, s1\n\t"
    TWO_STARTS
    "vmov s4, r2\n"
    "5:\n\t"
    COLUMN
    "ldr r3, [r1, #4]\n\t"
    "ldr r2, [r1], #8\n\t"
    TAKE
    "smlad r9, r2, r6, r9\n\t"
    "sxtb16 r2, r2\n\t"
    "smlad r9, r3, r5, r9\n\t"
    "sxtb16 r3, r3\n\t"
    "smlad r8, r2, r6, r8\n\t"
    "smlad r8, r3, r5, r8\n\t"
    "cmp r0, r7\n\t"
    "bne 5b\n\t"
    SECOND("r9", "r8")
    FACTORS
    FIRST("r8", "0")
    "vmov r7, s5\n\t"
    "subs r7, r7, #2\n\t"
    "blt 6f\n\t"
    BYTE("r9", "16")
    NEXT_RECORD("32")
    "vmov r2, s4\n\t"
    "vmov s9, r0\n\t"
    "movs r5, r7\n\t"
    "bne 4b\n"
    "6:\n\t"
    "vmov r7, s2"
    : [from] "+r"(from), [weights] "+r"(weights), [record] "+r"(record), [to] "+r"(to), [end] "+r"(end), [left] "+r"(left)
    : [four] "i"(8 * sizeof(X_TYPE)), [low] "i"(LOW), [high] "i"(HIGH)
    : "r6", "r8", "r9", "r10", "r11", "r12", "lr", "s0", "s1", "s2", "s4", "s5", "s6", "s7", "s8", "s9", "cc", "memory");
