// Along one row of results: TAPS_0 begins a sum, TAPS_1 and TAPS_2 go on with it. LOAD and OUTSIDE bring the bytes of a position.

#if STRIDE == 1
#define TURN \
    done = TAPS_2(next); \
    next = TAPS_1(new); \
    new = TAPS_0(start);
#define TO_RESULT
#else
#define TO_RESULT \
    LOAD \
    new = TAPS_1(new);
#define TURN \
    done = TAPS_2(new); \
    new = TAPS_0(start);
#endif
#define RESULT \
    *y = (Y_TYPE)FINISH(done, multiplier, offset, right); \
    y += y_step;

if (before != 0) {
    OUTSIDE
} else {
    LOAD
}
new = TAPS_0(start);
#if STRIDE == 1
LOAD
next = TAPS_1(new);
new = TAPS_0(start);
#endif
for (ptrdiff_t i = after; i < count; i++) {
    TO_RESULT
    LOAD
    TURN
    RESULT
}
if (after != 0) {
    TO_RESULT
    OUTSIDE
    TURN
    RESULT
}
#undef LOAD
#undef OUTSIDE
#undef TAPS_0
#undef TAPS_1
#undef TAPS_2
#undef TURN
#undef TO_RESULT
#undef RESULT
