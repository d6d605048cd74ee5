// Sums of floats, up to four pixels times four channels at a time (tiles.py). RELU, ADDED: what follows. tile_four.h has the same in
// assembly.

/* `count` pixels, up to four, whose windows start at `top` and `left`, times all channels; results `step` apart. `geometry`: height
 * and width of the image, numbers of a pixel and of a tap, height and width of the window, stride along a row, dilations. `room` is
 * for a list of the taps, or of the rows of windows where these are one piece of memory. */
IG_ROUTINE void NAME(const float *x, const float *zeros, const int32_t *geometry, int32_t *room, ptrdiff_t top, ptrdiff_t left,
#if ADDED
    ptrdiff_t count, const float *w, const float *bias, ptrdiff_t outs, float *y, ptrdiff_t step, const float *other)
#else
    ptrdiff_t count, const float *w, const float *bias, ptrdiff_t outs, float *y, ptrdiff_t step)
#endif
{
    struct tile {
        const float *w, *bias, *other;
        float *y;
        ptrdiff_t step, count, taps, twos, way;
        struct {
            const float *at[4];
            ptrdiff_t skip; /* bytes of the weights of four channels before this tap */
        } tap[TAPS];
    };
#ifdef IG_FLOATS
    struct tile *const t = (struct tile *)room;
#else
    struct tile tile, *const t = &tile;
    (void)room;
#endif
    const ptrdiff_t height = geometry[0], width = geometry[1], pixel = geometry[2], depth = geometry[3], kh = geometry[4];
    const ptrdiff_t kw = geometry[5], stride = geometry[6], down = geometry[7], along = geometry[8], all = kh * kw * depth;
    const ptrdiff_t end = left + (count - 1) * stride + (kw - 1) * along;
    const int joined = left >= 0 && end < width && along == 1 && depth == pixel; /* rows of windows are one piece of memory */
    const ptrdiff_t columns = joined ? 1 : kw, run = joined ? kw * depth : depth;
    t->taps = 0;
    IG_ROLLED
    for (ptrdiff_t r = 0; r < kh; r++) {
        const ptrdiff_t row = top + r * down;
        if (row < 0 || row >= height)
            continue;
        IG_ROLLED
        for (ptrdiff_t c = 0; c < columns; c++, t->taps++) {
            t->tap[t->taps].skip = 16 * depth * (r * kw + c);
            IG_ROLLED
            for (ptrdiff_t p = 0; p < 4; p++) { /* pixels that are not there are the first one */
                const ptrdiff_t at = left + (p < count ? p : 0) * stride + c * along;
                t->tap[t->taps].at[p] = at >= 0 && at < width ? x + (row * width + at) * pixel : zeros;
            }
        }
    }
    ptrdiff_t o = 0;
#ifdef IG_FLOATS
    #include "tile_four.h"
#endif
    IG_ROLLED
    for (ptrdiff_t wide = 4; o < outs; o += wide) {
        wide = outs - o < 4 ? 1 : 4;
        IG_ROLLED
        for (ptrdiff_t p = 0; p < count; p++) {
            IG_ROLLED
            for (ptrdiff_t c = 0; c < wide; c++) {
                float sum = bias[o + c];
                IG_ROLLED
                for (ptrdiff_t n = 0; n < t->taps; n++) {
                    const float *const from = w + all * o + t->tap[n].skip / 16 * wide + c;
                    IG_ROLLED
                    for (ptrdiff_t i = 0; i < run; i++)
                        sum += t->tap[n].at[p][i] * from[i * wide];
                }
#if ADDED
                sum += other[p * step + o + c];
#endif
#if RELU
                sum = sum < 0.0f ? 0.0f : sum;
#endif
                y[p * step + o + c] = sum;
            }
        }
    }
}
