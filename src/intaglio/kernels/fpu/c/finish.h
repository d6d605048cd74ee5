// The four sums of a pixel, one to four: another tensor is added (ADDED, at r10), what is negative becomes 0 (RELU), and they are
// stored at r6. Numbers are negative and not NaN where their bits, as a signed integer, are at most those of minus infinity: r12.

#if ADDED
#define ADD(one, two, three, four) \
    "vldmia r10, {s0-s3}\n\t" \
    "vadd.f32 " one ", " one ", s0\n\t" \
    "vadd.f32 " two ", " two ", s1\n\t" \
    "vadd.f32 " three ", " three ", s2\n\t" \
    "vadd.f32 " four ", " four ", s3\n\t"
#else
#define ADD(one, two, three, four)
#endif
#if RELU
#define LOWEST \
    "movw r12, #0\n\t" \
    "movt r12, #0xff80\n\t"
#define NOT_NEGATIVE(bits) \
    "cmp " bits ", r12\n\t" \
    "it le\n\t" \
    "movle " bits ", #0\n\t"
#define STORE(one, two, three, four) \
    "vmov r1, r2, " one ", " two "\n\t" \
    "vmov r3, r4, " three ", " four "\n\t" \
    NOT_NEGATIVE("r1") \
    NOT_NEGATIVE("r2") \
    NOT_NEGATIVE("r3") \
    NOT_NEGATIVE("r4") \
    "stm r6, {r1, r2, r3, r4}\n\t"
#else
#define LOWEST
#define STORE(one, two, three, four) "vstmia r6, {" one "-" four "}\n\t"
#endif
#define PIXEL(one, two, three, four) \
    ADD(one, two, three, four) \
    STORE(one, two, three, four)
