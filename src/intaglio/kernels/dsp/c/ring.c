// A depthwise 3x3 (ring.py). STRIDE is along the rows, LANES channels are computed at a time, 4 or 1. WIDEN makes numbers of
// 16 bits of bytes 0 and 2, WIDEN_ODD of bytes 1 and 3. ring_row.h brings a row into the ring, ring_four.h makes four results.

#define PAIR 3 * LANES /* from one pair of a row to the next */

/* A depthwise 3x3, stride STRIDE along its rows and `down` across them: `results` rows of `count` results from `rows` rows of
 * `length` positions, `step` and `across` apart. `before`, `above`: the first position, row is outside. Channels LANES at a time;
 * `ring` has room for three rows of them as pairs of 16-bit numbers, then for their scales and taps. */
IG_ROUTINE void NAME(const X_TYPE *image, ptrdiff_t step, ptrdiff_t across, ptrdiff_t length, ptrdiff_t rows, ptrdiff_t before,
    ptrdiff_t above, ptrdiff_t down, Y_TYPE *to_image, ptrdiff_t y_step, ptrdiff_t y_across, ptrdiff_t count, ptrdiff_t results,
    ptrdiff_t zero_point, ptrdiff_t channels, const int32_t *records, int32_t *ring, int32_t *scales)
{
    const ptrdiff_t positions = (count - 1) * STRIDE + 3, inside = positions - before < length ? positions - before : length;
#if LANES == 4
    const int32_t outside = (int32_t)(0x01010101u * (uint8_t)zero_point);
#else
    const int32_t outside = (int32_t)zero_point;
#endif
    for (ptrdiff_t first = 0; first < channels; first += LANES) {
        const ptrdiff_t c = first + LANES > channels ? channels - LANES : first; /* some of the last ones twice */
        ptrdiff_t ready = 0, turn = 0; /* rows from the one above on; the place of the window's first row */
        IG_ROLLED
        for (ptrdiff_t n = 0; n < LANES; n++) {
            const int32_t *const record = records + 8 * (c + n), thirds = record[3], last = record[4];
            int32_t *const scale = scales + 14 * n;
            scale[0] = record[5];
            scale[1] = record[6];
            scale[2] = record[7];
            scale[3] = last >> 16;
            scale[4] = scale[10] = record[0]; /* rows 0, 1, 2, 0, 1 */
            scale[5] = scale[11] = ig_pkhbt(record[0] >> 16, thirds);
            scale[6] = scale[12] = record[1];
            scale[7] = scale[13] = ig_pkhbt(record[1] >> 16, thirds >> 16);
            scale[8] = record[2];
            scale[9] = ig_pkhbt(record[2] >> 16, last);
        }
        for (ptrdiff_t i = 0; i < results; i++, turn = (turn + down) % 3) {
            for (ready = ready < i * down ? i * down : ready; ready < i * down + 3; ready++) {
                #include "ring_row.h"
            }
            IG_ROLLED
            for (ptrdiff_t n = 0; n < LANES; n++) {
                const int32_t *const scale = scales + 14 * n, *const w = scale + 4 + (turn == 0 ? 0 : 6 - 2 * turn);
                const int32_t *x = ring + n;
                Y_TYPE *y = to_image + i * y_across + c + n;
                #include "ring_four.h"
            }
        }
    }
}
