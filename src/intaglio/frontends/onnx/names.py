"""C identifiers for values. A name from a model never reaches C or a file name as it is."""

from __future__ import annotations

import re

MAX_LENGTH = 48
# Keywords of C99/C11 and C++, and names that headers define or that a program must not take.
_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const const_cast
    constexpr continue decltype default delete do double dynamic_cast else enum explicit export extern false float for
    friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public register reinterpret_cast requires restrict return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned using
    virtual void volatile wchar_t while xor xor_eq typeof constinit consteval
    main argc argv environ errno stdin stdout stderr null nan inf infinity isnan isinf isfinite signbit assert abort
    exit atexit abs labs div ldiv malloc calloc realloc free memcpy memmove memset memcmp memchr strlen strcpy strcat
    strcmp strncpy strncmp strchr strstr strtol strtod printf fprintf sprintf snprintf scanf puts putchar getchar gets
    fopen fclose fread fwrite fseek ftell remove rename signal raise time clock difftime qsort bsearch rand srand
    acos asin atan atan2 cos sin tan cosh sinh tanh acosh asinh atanh exp exp2 expm1 frexp ldexp log log10 log1p log2
    modf pow sqrt cbrt hypot ceil fabs floor fmod round rint trunc lrint nearbyint erf erfc tgamma lgamma remainder
    copysign nextafter fdim fmax fmin fma y0 y1 yn j0 j1 jn gamma index rindex read write open close link unlink
    access select send recv bind listen accept socket connect pipe dup sync sleep pause wait kill fork unix linux i386
    near far small huge min max byte offsetof alloca assertion setjmp longjmp va_list va_start va_arg va_end ptrdiff_t
    size_t ssize_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t float_t
    double_t file eof bufsiz m_pi i complex imaginary kernel global local constant half uint uchar ushort ulong
    image2d_t sampler_t event_t
"""
RESERVED = frozenset(_WORDS.split())


def identifier(text: str, fallback: str = "v") -> str:
    """A clean identifier that resembles `text`: ASCII letters, digits and single underscores."""
    clean = re.sub(r"[^A-Za-z0-9]+", "_", text[: 4 * MAX_LENGTH]).strip("_")
    if len(clean) > MAX_LENGTH - 8:
        clean = clean[-(MAX_LENGTH - 8) :].lstrip("_")  # the end of a path tells more than its start
    if not clean:
        clean = fallback
    if clean[0].isdigit():
        clean = f"{fallback}_{clean}"
    if clean.lower() in RESERVED:
        clean += "_"
    return clean


class Names:
    """Hands out identifiers that differ even when compared without case."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def take(self, text: str, fallback: str = "v") -> str:
        stem = identifier(text, fallback)
        name = stem
        number = self._used.get(stem.lower(), 0)
        while name.lower() in self._used:
            number += 1
            name = f"{stem.rstrip('_')}_{number}"
        self._used[stem.lower()] = number
        self._used.setdefault(name.lower(), 0)
        return name
