// A sum of less than 2^29, scaled; by products of 16 by 16 bits on a Cortex-M0+, which has no longer ones.

IG_INLINE int32_t NAME(int32_t sum, int32_t multiplier, int32_t offset, int32_t right)
{
#if defined(__thumb2__) || defined(__riscv)
    const int32_t scaled = (int32_t)(((int64_t)sum * multiplier + HALF64) >> 31);
#else
    const int32_t low = (int16_t)sum, high = (sum - low) >> 16, m_low = multiplier & 0xffff, m_high = multiplier >> 16;
    const int32_t middle = low * m_high + ((low * m_low) >> 16) + high * m_low;
    const int32_t scaled = 2 * high * m_high + ((middle + HALF) >> 15);
#endif
#if TWICE
    const int32_t value = (scaled + offset + (sum >> 31)) >> right;
#else
    const int32_t value = (scaled + offset) >> right;
#endif
    return value;
}
