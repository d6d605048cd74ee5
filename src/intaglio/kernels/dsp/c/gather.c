// A column has a pair in every COLUMNS * 2 numbers of `to`; PAIR1, PAIR2: to the next pair, the one after it.
// WIDEN makes numbers of 16 bits of bytes 0 and 2, WIDEN_ODD of bytes 1 and 3.

/* `rows` runs of `length` bytes, `row` apart, as pairs in one of COLUMNS column(s) */
IG_ROUTINE void NAME(const TYPE *x, ptrdiff_t row, ptrdiff_t rows, ptrdiff_t length, int16_t *to)
{
    for (; rows > 0; rows--, x += row) {
        const TYPE *from = x;
        ptrdiff_t n = length;
        IG_ROLLED
        for (; n >= 4; n -= 4, from += 4, to += PAIR2) {
            const int32_t four = ig_word(from);
            ig_put_word(to, WIDEN(four));
            ig_put_word(to + PAIR1, WIDEN_ODD(four));
        }
        IG_ROLLED
        for (; n > 0; n -= 2, from += 2, to += PAIR1) {
            to[0] = from[0];
            if (n > 1)
                to[1] = from[1];
        }
    }
}
