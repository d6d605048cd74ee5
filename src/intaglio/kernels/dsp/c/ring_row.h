// Row `ready` of LANES channels of ring.c, as pairs of numbers.

#if LANES == 4
#define AT(place) ig_word(place)
#define PUT(one, two) \
    bytes = ig_pkhbt(one, two); \
    to[0] = WIDEN(bytes); \
    to[1] = WIDEN_ODD(bytes); \
    bytes = ig_pkhtb(two, one); \
    to[2] = WIDEN(bytes); \
    to[3] = WIDEN_ODD(bytes); \
    to += PAIR;
#else
#define AT(place) *(place)
#define PUT(one, two) \
    bytes = ig_pkhbt(one, two); \
    to[0] = bytes; \
    to += PAIR;
#endif

int32_t *to = ring + LANES * (ready % 3), bytes;
const ptrdiff_t at = ready - above;
if (at < 0 || at >= rows) {
    IG_ROLLED
    for (ptrdiff_t p = 0; p < positions; p += 2) {
        PUT(outside, outside)
    }
    continue;
}
const X_TYPE *x = image + at * across + c;
ptrdiff_t left = inside;
if (before != 0) {
    const int32_t one = AT(x);
    PUT(outside, one)
    x += step, left--;
}
IG_ROLLED
for (; left > 1; left -= 2, x += 2 * step) {
    const int32_t one = AT(x), two = AT(x + step);
    PUT(one, two)
}
if (left > 0) {
    const int32_t one = AT(x);
    PUT(one, outside)
} else if (inside < positions - before) {
    PUT(outside, outside)
}
#undef AT
#undef PUT
