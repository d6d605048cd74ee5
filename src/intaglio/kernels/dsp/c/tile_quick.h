// All of tile.c for four columns, where sums are scaled in a few instructions (quick.h). Registers: r0 weights, r1 columns, r2 and r3
// weights of a pair (the second channel's or both channels', the first channel's), r4 to r7 sums of the first channel, r8 to r11 of
// the second, r12 and lr numbers of two columns. All else waits in float registers. Compilers do not give r7 away, since it may be
// the frame pointer, so it is kept in `keep`. LONG: weights and columns are loaded one after the other, which pipelines: an
// instruction more and a cycle less per pair than with LDRD, for rows that are long. The first pair makes eight sums of two starts,
// then the loop is entered behind its first or its fifth pair. Lines are short, since C99 has strings of 4,095 characters.

#if JOINED
#define FIRST_WEIGHTS "ldr r2,[r0],#4\n\t"
#define WEIGHTS "sxtb16 r3,r2\n\t"
#elif APART
#define FIRST_WEIGHTS "ldr r2,[r0],#4\n\t"
#define WEIGHTS \
    "sxtb16 r3,r2\n\t" \
    "sxtb16 r2,r2,ror #8\n\t"
#else
#define FIRST_WEIGHTS "ldrd r3,r2,[r0],#8\n\t"
#define WEIGHTS
#endif
#if JOINED
#define SECOND_OF(sum, first) \
    "sub " sum ", " sum ", " first "\n\t" \
    "asr " sum ", " sum ", #7\n\t"
#else
#define SECOND_OF(sum, first) "lsl " sum ", " sum ", #1\n\t"
#endif
#if LONG
#define FIRST_COLUMNS \
    "ldr r12,[r1],#16\n\t" \
    FIRST_WEIGHTS \
    "ldr lr,[r1,#-12]\n\t"
#define OTHER_COLUMNS "ldrd r12,lr,[r1,#-8]\n\t"
#else
#define FIRST_COLUMNS \
    FIRST_WEIGHTS \
    "ldrd r12,lr,[r1],#8\n\t"
#define OTHER_COLUMNS "ldrd r12,lr,[r1],#8\n\t"
#endif
#define PAIR_OF_EACH \
    FIRST_COLUMNS \
    WEIGHTS \
    "smlad r8,r2,r12,r8\n\t" \
    "smlad r4,r3,r12,r4\n\t" \
    "smlad r9,r2,lr,r9\n\t" \
    "smlad r5,r3,lr,r5\n\t" \
    OTHER_COLUMNS \
    "smlad r10,r2,r12,r10\n\t" \
    "smlad r6,r3,r12,r6\n\t" \
    "smlad r11,r2,lr,r11\n\t" \
    "smlad r7,r3,lr,r7\n\t"
#define THREE_PAIRS \
    PAIR_OF_EACH \
    PAIR_OF_EACH \
    PAIR_OF_EACH
#define BYTE_OF(sum) RESULT_OF(sum, "r3", "r12", "lr", "r2")
#define FIRST_RESULT(sum) \
    "lsl " sum ", " sum ", #1\n\t" \
    BYTE_OF(sum)

float keep, to = AS_FLOAT(y), record = AS_FLOAT(scale);
__asm__ volatile(
    "vmov %[keep], r7\n\t"
    "vmov r0, %[w]\n"
    "1:\n\t" /* two channels */
    "vmov r3, %[record]\n\t"
    "vmov r1, %[cols]\n\t"
    "ldr r4, [r3]\n\t"
    "ldr r8, [r3, #16]\n\t"
    FIRST_WEIGHTS
    "ldrd r12,lr,[r1,#8]\n\t"
    WEIGHTS
    "smlad r10,r2,r12,r8\n\t"
    "smlad r6,r3,r12,r4\n\t"
    "smlad r11,r2,lr,r8\n\t"
    "smlad r7,r3,lr,r4\n\t"
    "ldrd r12,lr,[r1],#16\n\t"
    "smlad r9,r2,lr,r8\n\t"
    "smlad r5,r3,lr,r4\n\t"
    "smlad r8,r2,r12,r8\n\t"
    "smlad r4,r3,r12,r4\n\t"
    "vmov r3, %[odd]\n\t"
    "cmp r3, #0\n\t"
    "bne 6f\n\t"
    "b 5f\n"
    "2:\n\t"
    PAIR_OF_EACH
    "5:\n\t"
    THREE_PAIRS
    PAIR_OF_EACH
    "6:\n\t" /* where they are no multiple of eight */
    THREE_PAIRS
    "vmov r12, %[end]\n\t"
    "cmp r1, r12\n\t"
    "bne 2b\n\t"
    SECOND_OF("r8", "r4")
    SECOND_OF("r9", "r5")
    SECOND_OF("r10", "r6")
    SECOND_OF("r11", "r7")
    "vmov r1, %[record]\n\t"
    "ldm r1!, {r2, r3, r12, lr}\n\t"
    FIRST_RESULT("r4")
    FIRST_RESULT("r5")
    FIRST_RESULT("r6")
    FIRST_RESULT("r7")
    "ldm r1!, {r2, r3, r12, lr}\n\t"
    BYTE_OF("r8")
    BYTE_OF("r9")
    BYTE_OF("r10")
    BYTE_OF("r11")
    "vmov %[record], r1\n\t"
    "vmov lr, %[to]\n\t"
    "vmov r3, %[last]\n\t"
    "vmov r2, %[step]\n\t"
    "cmp r1, r3\n\t"
    "bhi 3f\n\t"
    "strb r8, [lr, #1]\n\t"
    "strb r4, [lr], #2\n\t"
    "vmov %[to], lr\n\t"
    "add lr, lr, r2\n\t"
    "strb r5, [lr, #-2]\n\t"
    "strb r9, [lr, #-1]\n\t"
    "add lr, lr, r2\n\t"
    "strb r6, [lr, #-2]\n\t"
    "strb r10, [lr, #-1]\n\t"
    "add lr, lr, r2\n\t"
    "strb r7, [lr, #-2]\n\t"
    "strb r11, [lr, #-1]\n\t"
    "bne 1b\n\t"
    "b 4f\n"
    "3:\n\t" /* the last channel of an odd number */
    "strb r4, [lr]\n\t"
    "strb r5, [lr, r2]\n\t"
    "add lr, lr, r2, lsl #1\n\t"
    "strb r6, [lr]\n\t"
    "strb r7, [lr, r2]\n"
    "4:\n\t"
    "vmov r7, %[keep]"
    : [keep] "=&t"(keep), [to] "+&t"(to), [record] "+&t"(record)
    : [w] "t"(AS_FLOAT(weights)), [cols] "t"(AS_FLOAT(cols)), [end] "t"(AS_FLOAT(cols + PAIR * pairs)),
      [step] "t"(ig_as_float((int32_t)step)), [odd] "t"(ig_as_float((int32_t)(pairs & 4))), [last] "t"(AS_FLOAT(scale + 4 * outs)),
      [low] "i"(LOW), [high] "i"(HIGH)
    : "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr", "cc", "memory");
