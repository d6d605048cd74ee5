IG_ROUTINE void NAME(const TYPE *left, const TYPE *right, TYPE *y, ptrdiff_t count, const int32_t *record)
{
    for (ptrdiff_t i = 0; i < count; i++)
        y[i] = (TYPE)SUM(left[i], right[i], record);
}
