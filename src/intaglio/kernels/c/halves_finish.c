// From a sum to a byte. LINKAGE: a function of its own where callers are short of registers.

LINKAGE int32_t NAME(int32_t sum, int32_t multiplier, int32_t offset, int32_t right)
{
    const int32_t value = SCALED(sum, multiplier, offset, right);
    return value < LOW ? LOW : value > HIGH ? HIGH : value;
}
