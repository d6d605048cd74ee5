// From a sum to a byte.

IG_INLINE int32_t NAME(int32_t sum, int32_t multiplier, int32_t offset, int32_t right)
{
    const int32_t value = SCALED(sum, multiplier, offset, right);
    return value < LOW ? LOW : value > HIGH ? HIGH : value;
}
