// s: zero points of both sides, multiplier, offset, shift

IG_ROUTINE void NAME(const TYPE *left, const TYPE *right, TYPE *y, ptrdiff_t count, const int32_t *s)
{
    for (ptrdiff_t i = 0; i < count; i++)
        y[i] = (TYPE)FINISH((left[i] - s[0]) * (right[i] - s[1]) DOUBLE, s[2], s[3], s[4]);
}
