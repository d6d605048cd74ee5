/* A window, byte by byte, in the order of the weights; what is outside of the image counts as its zero point. */
IG_ROUTINE void NAME(const TYPE *x, ptrdiff_t top, ptrdiff_t left, ptrdiff_t height, ptrdiff_t width,
    ptrdiff_t channels, ptrdiff_t rows, ptrdiff_t cols, ptrdiff_t down, ptrdiff_t across, ptrdiff_t depth, ptrdiff_t zero,
    TYPE *to)
{
    for (ptrdiff_t i = 0; i < rows; i++) {
        const ptrdiff_t h = top + i * down;
        if (h >= 0 && h < height && left >= 0 && left + cols <= width && across == 1 && depth == channels) { /* one run of bytes */
            memcpy(to, x + (h * width + left) * channels, (size_t)(cols * depth));
            to += cols * depth;
            continue;
        }
        for (ptrdiff_t j = 0; j < cols; j++, to += depth) {
            const ptrdiff_t w = left + j * across;
            if (h >= 0 && h < height && w >= 0 && w < width)
                memcpy(to, x + (h * width + w) * channels, (size_t)depth);
            else
                memset(to, (int)zero, (size_t)depth);
        }
    }
}
