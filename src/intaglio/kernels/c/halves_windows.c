/* The windows of four pixels from (row, column) on, side by side; what is behind the last of `count` repeats it. `outside` has what
 * counts as outside of the image. A window row is one run where all four windows are inside. */
IG_ROUTINE void NAME(const TYPE *x, const TYPE *outside, ptrdiff_t row, ptrdiff_t column, ptrdiff_t out_width,
    ptrdiff_t count, ptrdiff_t stride_down, ptrdiff_t stride_across, ptrdiff_t pad_top, ptrdiff_t pad_left, ptrdiff_t height,
    ptrdiff_t width, ptrdiff_t channels, ptrdiff_t rows, ptrdiff_t cols, ptrdiff_t down, ptrdiff_t across, ptrdiff_t depth,
    int32_t *to)
{
    ptrdiff_t tops[4], lefts[4];
    int inside = across == 1 && depth == channels;
    uint32_t *at = (uint32_t *)to;
    for (ptrdiff_t p = 0; p < 4; p++) {
        const ptrdiff_t top = row * stride_down - pad_top, left = column * stride_across - pad_left;
        inside = inside && top >= 0 && top + (rows - 1) * down < height && left >= 0 && left + cols <= width;
        tops[p] = top;
        lefts[p] = left;
        if (p + 1 < count && ++column == out_width) {
            column = 0;
            row++;
        }
    }
    if (inside != 0) {
        depth *= cols;
        cols = 1;
    }
    for (ptrdiff_t i = 0; i < rows; i++)
        for (ptrdiff_t j = 0; j < cols; j++) {
            const TYPE *from[4];
            for (ptrdiff_t p = 0; p < 4; p++) {
                const ptrdiff_t h = tops[p] + i * down, w = lefts[p] + j * across;
                from[p] = h >= 0 && h < height && w >= 0 && w < width ? x + (h * width + w) * channels : outside;
            }
            at = PACK(from, depth, at);
        }
}
