// FINISH makes a byte of a sum.

/* Four pixels, packed as two words for each number of a window, times all channels, four weights at a time. A product of a word and
 * a weight is two products: sums of both halves fit 16 bits until they are split. A record is: start, multiplier, shift; its sign says
 * that sums fit only for two weights at a time. */
IG_ROUTINE void NAME(const int8_t *w, const int32_t *scale, const int32_t *pixels, ptrdiff_t fours, ptrdiff_t outs,
    ptrdiff_t zero, ptrdiff_t count, Y_TYPE *y, ptrdiff_t y_step)
{
    for (ptrdiff_t o = 0; o < outs; o++, w += 4 * fours, scale += 3) {
        const int32_t right = scale[2] & 31, offset = (1 + 2 * (int32_t)zero) * (1 << (right - 1));
        int32_t sums[4];
        SUMS(w, pixels, pixels + 8 * fours, scale[0], scale[2], sums);
        for (ptrdiff_t p = 0; p < count; p++)
            y[p * y_step + o] = (Y_TYPE)FINISH(sums[p], scale[1], offset, right);
    }
}
