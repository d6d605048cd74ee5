// Bytes without a sign are moved by 128 on their way: the records know.

#if SIGNED
#define BYTE(x) x
#else
#define BYTE(x) (x - 128)
#endif

/* Bytes of four pixels, in two words for each: the first pixel plus 2^16 times the second, the third plus 2^16 times the fourth. */
IG_INLINE uint32_t *NAME(const TYPE *const *from, ptrdiff_t count, uint32_t *to)
{
    const TYPE *const a = from[0], *const b = from[1], *const c = from[2], *const d = from[3];
    IG_ROLLED
    for (ptrdiff_t k = 0; k < count; k++, to += 2) {
        to[0] = (uint32_t)BYTE(a[k]) + ((uint32_t)BYTE(b[k]) << 16);
        to[1] = (uint32_t)BYTE(c[k]) + ((uint32_t)BYTE(d[k]) << 16);
    }
    return to;
}
