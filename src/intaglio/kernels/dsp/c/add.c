IG_ROUTINE void NAME(const TYPE *left, const TYPE *right, TYPE *y, ptrdiff_t count, const int32_t *record)
{
    int32_t s[8]; /* so that no result can change it */
    for (int i = 0; i < 8; i++)
        s[i] = record[i];
    for (ptrdiff_t i = 0; i < count; i++)
        y[i] = (TYPE)SUM(left[i], right[i], s);
}
