// FINISH makes a byte of a sum.

/* A row times all channels, four at a time. A word is a weight of each, with 128 added; every other byte of it is two weights, and
 * their product with a number of the row is two products. A record is: start, multiplier, shift; above its lowest byte the number of
 * products whose sums fit 16 bits. */
IG_ROUTINE void NAME(const uint8_t *w, const int32_t *scale, const X_TYPE *x, ptrdiff_t depth, ptrdiff_t outs, ptrdiff_t zero,
    Y_TYPE *y)
{
    for (ptrdiff_t o = 0; o < outs; w += 4 * depth) {
        int32_t sums[4] = {scale[0], scale[3], scale[6], scale[9]};
        SUMS(w, x, depth, scale[2] >> 8, sums);
        for (ptrdiff_t c = 0; c < 4 && o < outs; c++, o++, scale += 3) {
            const int32_t right = scale[2] & 31, offset = (1 + 2 * (int32_t)zero) * (1 << (right - 1));
            y[o] = (Y_TYPE)FINISH(sums[c], scale[1], offset, right);
        }
    }
}
