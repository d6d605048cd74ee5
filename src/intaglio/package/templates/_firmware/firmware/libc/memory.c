/* memcpy, memmove, memset, memcmp: by words where both sides are aligned alike. */
#include <stddef.h>
#include <stdint.h>

#include "string.h"

#undef memcpy
#undef memmove
#undef memset

typedef uint32_t __attribute__((may_alias)) word;

void *memcpy(void *restrict to, const void *restrict from, size_t count)
{
    unsigned char *t = to;
    const unsigned char *f = from;

    if ((((uintptr_t)t ^ (uintptr_t)f) & 3u) == 0u) {
        for (; ((uintptr_t)t & 3u) != 0u && count > 0u; count--)
            *t++ = *f++;
        for (; count >= 16u; count -= 16u, t += 16, f += 16) {
            const word a = ((const word *)f)[0], b = ((const word *)f)[1], c = ((const word *)f)[2], d = ((const word *)f)[3];
            ((word *)t)[0] = a;
            ((word *)t)[1] = b;
            ((word *)t)[2] = c;
            ((word *)t)[3] = d;
        }
        for (; count >= 4u; count -= 4u, t += 4, f += 4)
            *(word *)t = *(const word *)f;
    }
    while (count-- > 0u)
        *t++ = *f++;
    return to;
}

void *memmove(void *to, const void *from, size_t count)
{
    unsigned char *t = to;
    const unsigned char *f = from;

    if ((uintptr_t)t - (uintptr_t)f >= count)
        return memcpy(to, from, count); /* the copy runs upwards, and `to` is not within what is still to be read */
    while (count-- > 0u)
        t[count] = f[count];
    return to;
}

void *memset(void *to, int value, size_t count)
{
    unsigned char *t = to;
    const word all = 0x01010101u * (unsigned char)value;

    for (; ((uintptr_t)t & 3u) != 0u && count > 0u; count--)
        *t++ = (unsigned char)value;
    for (; count >= 16u; count -= 16u, t += 16) {
        ((word *)t)[0] = all;
        ((word *)t)[1] = all;
        ((word *)t)[2] = all;
        ((word *)t)[3] = all;
    }
    for (; count >= 4u; count -= 4u, t += 4)
        *(word *)t = all;
    while (count-- > 0u)
        *t++ = (unsigned char)value;
    return to;
}

int memcmp(const void *a, const void *b, size_t count)
{
    const unsigned char *x = a, *y = b;

    for (; count > 0u; count--, x++, y++)
        if (*x != *y)
            return *x < *y ? -1 : 1;
    return 0;
}
