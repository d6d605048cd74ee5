/* A window, byte by byte, in the order of the weights; what is outside of the image counts as its zero point. */
IG_ROUTINE void NAME(const TYPE *x, ptrdiff_t top, ptrdiff_t left, ptrdiff_t height, ptrdiff_t width,
    ptrdiff_t channels, ptrdiff_t rows, ptrdiff_t cols, ptrdiff_t down, ptrdiff_t across, ptrdiff_t depth, ptrdiff_t zero,
    TYPE *to)
{
    for (ptrdiff_t i = 0; i < rows; i++) {
        const ptrdiff_t h = top + i * down;
        if (h >= 0 && h < height && left >= 0 && left + cols <= width && across == 1 && depth == channels) { /* one run of bytes */
            const TYPE *const run = x + (h * width + left) * channels;
#ifdef IG_MVE
            for (ptrdiff_t k = 0; k < cols * depth; k += 16) {
                const mve_pred16_t some = vctp8q((uint32_t)(cols * depth - k));
                vstrbq_p_u8((uint8_t *)to + k, vldrbq_z_u8((const uint8_t *)run + k, some), some);
            }
#else
            memcpy(to, run, (size_t)(cols * depth));
#endif
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
