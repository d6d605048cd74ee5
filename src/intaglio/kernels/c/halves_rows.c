/* Four rows of `depth` bytes side by side; what is behind the last of `count` repeats it. */
IG_ROUTINE void NAME(const TYPE *x, ptrdiff_t depth, ptrdiff_t count, int32_t *to)
{
    const TYPE *from[4];
    for (ptrdiff_t p = 0; p < 4; p++)
        from[p] = x + (p < count ? p : count - 1) * depth;
    PACK(from, depth, (uint32_t *)to);
}
