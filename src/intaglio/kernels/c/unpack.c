/* Half words by their numbers, four at a time. */
IG_ROUTINE void NAME(const uint8_t *codes, const uint16_t *words, int8_t *to, ptrdiff_t count)
{
    uint32_t *out = (uint32_t *)(void *)to;
    IG_ROLLED
    for (const uint8_t *end = codes + count; codes != end; codes += 4, out += 2) {
        const uint32_t four = *(const uint32_t *)(const void *)codes;
        out[0] = (uint32_t)words[four & 255u] | (uint32_t)words[four >> 8 & 255u] << 16;
        out[1] = (uint32_t)words[four >> 16 & 255u] | (uint32_t)words[four >> 24] << 16;
    }
}
