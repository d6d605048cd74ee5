// WIDEN_ADD adds bytes 0 and 2 to two sums of 16 bits, WIDEN_ADD_ODD bytes 1 and 3; HALF is the type of such a sum.

/* The mean of each channel in a window of at most MOST_PIXELS pixels, rounded half away from zero */
IG_ROUTINE void NAME(const TYPE *x, ptrdiff_t channels, ptrdiff_t rows, ptrdiff_t cols, ptrdiff_t row, ptrdiff_t low,
    ptrdiff_t high, TYPE *y)
{
    const int32_t count = (int32_t)(rows * cols), half = count / 2;
    for (ptrdiff_t c = 0; c < channels; c += 4) {
        int32_t sums[4] = {0, 0, 0, 0};
        if (c + 4 <= channels) {
            int32_t even = 0, odd = 0; /* channels 0 and 2, 1 and 3 */
            for (ptrdiff_t i = 0; i < rows; i++)
                for (ptrdiff_t j = 0; j < cols; j++) {
                    const int32_t four = ig_word(x + i * row + j * channels + c);
                    even = WIDEN_ADD(even, four);
                    odd = WIDEN_ADD_ODD(odd, four);
                }
            sums[0] = (HALF)even;
            sums[1] = (HALF)odd;
            sums[2] = (HALF)((uint32_t)even >> 16);
            sums[3] = (HALF)((uint32_t)odd >> 16);
        } else {
            for (ptrdiff_t i = 0; i < rows; i++)
                for (ptrdiff_t j = 0; j < cols; j++)
                    IG_ROLLED
                    for (ptrdiff_t d = 0; d < channels - c; d++)
                        sums[d] += x[i * row + j * channels + c + d];
        }
        const ptrdiff_t most = channels - c < 4 ? channels - c : 4;
        IG_ROLLED
        for (ptrdiff_t d = 0; d < most; d++) {
            const int32_t mean = (sums[d] > 0 ? sums[d] + half : sums[d] - half) / count;
            y[c + d] = (TYPE)(mean < low ? (int32_t)low : mean > high ? (int32_t)high : mean);
        }
    }
}
