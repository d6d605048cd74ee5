// The sums of tile.c in C. Weights: the first channel's in e; the second's, or both channels', in w0.

for (const int16_t *a = cols; a != end; a += PAIR, w += WORD) {
#if JOINED
    const int32_t w0 = ig_word(w), e = ig_sxtb16(w0);
#elif APART
    const int32_t e = ig_sxtb16(ig_word(w)), w0 = ig_sxtb16_odd(ig_word(w));
#else
    const int32_t e = ig_word(w), w0 = ig_word(w + 4);
#endif
    s0 = ig_smlad(e, ig_word(a + 0), s0);
    r0 = ig_smlad(w0, ig_word(a + 0), r0);
#if COLUMNS > 1
    s1 = ig_smlad(e, ig_word(a + 2), s1);
    r1 = ig_smlad(w0, ig_word(a + 2), r1);
#endif
#if COLUMNS == 4
    s2 = ig_smlad(e, ig_word(a + 4), s2);
    r2 = ig_smlad(w0, ig_word(a + 4), r2);
    s3 = ig_smlad(e, ig_word(a + 6), s3);
    r3 = ig_smlad(w0, ig_word(a + 6), r3);
#endif
}
