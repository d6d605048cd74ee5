/* The largest of each channel in a window of rows times cols pixels, `row` bytes from one row to the next */
IG_ROUTINE void NAME(const TYPE *x, ptrdiff_t channels, ptrdiff_t rows, ptrdiff_t cols, ptrdiff_t row, TYPE *y)
{
    ptrdiff_t c = 0;
    for (; c + 4 <= channels; c += 4) {
        int32_t best = ig_word(x + c);
        for (ptrdiff_t i = 0; i < rows; i++)
            for (ptrdiff_t j = 0; j < cols; j++)
                best = MAX4(best, ig_word(x + i * row + j * channels + c));
        ig_put_word(y + c, best);
    }
    for (; c < channels; c++) {
        TYPE best = x[c];
        for (ptrdiff_t i = 0; i < rows; i++)
            for (ptrdiff_t j = 0; j < cols; j++)
                best = x[i * row + j * channels + c] > best ? x[i * row + j * channels + c] : best;
        y[c] = best;
    }
}
