// Macros as in gather.c

/* A window that may reach over the border, as pairs in one of COLUMNS column(s).
 * A run is a row of the window (`joint`) or a pixel. */
IG_ROUTINE void NAME(const TYPE *x, ptrdiff_t top, ptrdiff_t left, ptrdiff_t height, ptrdiff_t width,
    ptrdiff_t channels, ptrdiff_t rows, ptrdiff_t cols, ptrdiff_t down, ptrdiff_t across, ptrdiff_t depth, ptrdiff_t joint,
    ptrdiff_t zero, int16_t *to)
{
    const int32_t fill = (int32_t)(0x01010101u * (uint8_t)zero);
    const ptrdiff_t length = joint ? cols * depth : depth, whole = length - length % 4;
    for (ptrdiff_t i = 0; i < rows; i++) {
        const ptrdiff_t h = top + i * down;
        ptrdiff_t at = 0; /* in the run */
        for (ptrdiff_t j = 0; j < cols; j++) {
            const ptrdiff_t w = left + j * across;
            const int inside = h >= 0 && h < height && w >= 0 && w < width;
            const TYPE *from = inside ? x + (h * width + w) * channels : x;
            if (depth % 4 == 0) {
                IG_ROLLED
                for (ptrdiff_t c = 0; c < depth; c += 4, to += PAIR2) {
                    const int32_t four = inside ? ig_word(from + c) : fill;
                    ig_put_word(to, WIDEN(four));
                    ig_put_word(to + PAIR1, WIDEN_ODD(four));
                }
                continue;
            }
            IG_ROLLED
            for (ptrdiff_t c = 0; c < depth; c++, at++) {
                const ptrdiff_t quad = at % 4, place = at < whole ? at - quad + 2 * (quad % 2) : at - at % 2;
                to[COLUMNS * place + (at < whole ? quad / 2 : at % 2)] = inside ? from[c] : (int16_t)zero;
            }
            if (!joint || j + 1 == cols) {
                to += PAIR1 * ((length + 1) / 2);
                at = 0;
            }
        }
    }
}
