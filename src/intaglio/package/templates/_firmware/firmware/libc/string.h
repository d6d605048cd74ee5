/* What the layers use of <string.h>, for a core without a C library. The compiler opens up calls of known size. */
#ifndef INTAGLIO_STRING_H
#define INTAGLIO_STRING_H

#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t count);
void *memmove(void *to, const void *from, size_t count);
void *memset(void *to, int value, size_t count);
int memcmp(const void *a, const void *b, size_t count);

#define memcpy(to, from, count) __builtin_memcpy(to, from, count)
#define memmove(to, from, count) __builtin_memmove(to, from, count)
#define memset(to, value, count) __builtin_memset(to, value, count)

#endif
