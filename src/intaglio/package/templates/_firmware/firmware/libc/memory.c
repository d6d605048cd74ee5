/* memcpy, memmove, memset, memcmp: by words where both sides are aligned alike. */
#include <stddef.h>
#include <stdint.h>

#include "string.h"

#undef memcpy
#undef memmove
#undef memset

typedef uint32_t __attribute__((may_alias)) word;

__attribute__((noinline)) void *memcpy(void *restrict to, const void *restrict from, size_t count)
{
    unsigned char *t = to;
    const unsigned char *f = from;

    if ((((uintptr_t)t ^ (uintptr_t)f) & 3u) == 0u) {
        for (; ((uintptr_t)t & 3u) != 0u && count > 0u; count--)
            *t++ = *f++;
        for (; count >= 16u; count -= 16u, t += 16, f += 16) {
            const word *const g = (const word *)(const void *)f;
            word *const u = (word *)(void *)t;
            const word a = g[0], b = g[1], c = g[2], d = g[3];
            u[0] = a;
            u[1] = b;
            u[2] = c;
            u[3] = d;
        }
        for (; count >= 4u; count -= 4u, t += 4, f += 4)
            *(word *)(void *)t = *(const word *)(const void *)f;
    }
    while (count-- > 0u)
        *t++ = *f++;
    return to;
}

__attribute__((noinline)) void *memmove(void *to, const void *from, size_t count)
{
    unsigned char *t = to;
    const unsigned char *f = from;

    if ((uintptr_t)t - (uintptr_t)f >= count)
        return memcpy(to, from, count); /* the copy runs upwards, and `to` is not within what is still to be read */
    if ((((uintptr_t)t ^ (uintptr_t)f) & 3u) == 0u) {
        for (; ((uintptr_t)(t + count) & 3u) != 0u && count > 0u; count--)
            t[count - 1u] = f[count - 1u];
        for (; count >= 16u; count -= 16u) {
            const word *g = (const word *)(const void *)(f + count);
            const word a = g[-1], b = g[-2], c = g[-3], d = g[-4];
            ((word *)(void *)(t + count))[-1] = a;
            ((word *)(void *)(t + count))[-2] = b;
            ((word *)(void *)(t + count))[-3] = c;
            ((word *)(void *)(t + count))[-4] = d;
        }
    }
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
        word *const u = (word *)(void *)t;
        u[0] = all;
        u[1] = all;
        u[2] = all;
        u[3] = all;
    }
    for (; count >= 4u; count -= 4u, t += 4)
        *(word *)(void *)t = all;
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

#if defined(__ARM_EABI__)
/* Clang calls these names instead; the numbers say to how many bytes both sides are aligned. */
#define EABI_COPY(name, function) \
    void name(void *to, const void *from, size_t count); \
    void name(void *to, const void *from, size_t count) \
    { \
        function(to, from, count); \
    }
EABI_COPY(__aeabi_memcpy, memcpy)
EABI_COPY(__aeabi_memcpy4, memcpy)
EABI_COPY(__aeabi_memcpy8, memcpy)
EABI_COPY(__aeabi_memmove, memmove)
EABI_COPY(__aeabi_memmove4, memmove)
EABI_COPY(__aeabi_memmove8, memmove)
#endif
