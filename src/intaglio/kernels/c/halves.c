// A value as a byte.

#define CLIP(v) v < LOW ? LOW : v > HIGH ? HIGH : v

/* Four pixels, packed as two words for each number of a window, times all channels, four weights at a time. A product of a word and
 * a weight is two products: sums of both halves fit 16 bits until they are split. A record is: start, multiplier, shift. Where
 * some fours of a channel fit only two by two, the sign of its shift is set, and above five bits is where its runs are: how many fours
 * fit before each of those. */
IG_ROUTINE void NAME(const int8_t *w, const int32_t *scale, const uint8_t *runs, const int32_t *pixels, ptrdiff_t fours, ptrdiff_t outs,
    ptrdiff_t zero, ptrdiff_t count, Y_TYPE *y, ptrdiff_t y_step)
{
    const int32_t *const end = pixels + 8 * fours;
    for (ptrdiff_t o = 0; o < outs; o++, w += 4 * fours, scale += 3) {
        int32_t values[4];
        Y_TYPE *to = y + o;
        SUMS(w, runs, pixels, end, scale, (int32_t)zero, values);
        to[0] = (Y_TYPE)(CLIP(values[0]));
        if (count < 2)
            continue;
        to += y_step;
        to[0] = (Y_TYPE)(CLIP(values[1]));
        if (count < 3)
            continue;
        to += y_step;
        to[0] = (Y_TYPE)(CLIP(values[2]));
        if (count > 3)
            to[y_step] = (Y_TYPE)(CLIP(values[3]));
    }
}
