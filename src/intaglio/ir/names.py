"""Words that cannot be names in generated C, whoever chooses the name: a front end, or a person who edits an IR file."""

from __future__ import annotations

import re

# Keywords of C99/C11 and C++ (headers are read by both).
_KEYWORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const const_cast
    constexpr continue decltype default delete do double dynamic_cast else enum explicit export extern false float for
    friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
    protected public register reinterpret_cast requires restrict return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned using
    virtual void volatile wchar_t while xor xor_eq typeof constinit consteval
    _bool _complex _imaginary char8_t char16_t char32_t co_await co_return co_yield
"""
# Names that headers define or that a program must not take.
_LIBRARY = """
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
KEYWORDS = frozenset(_KEYWORDS.split())
RESERVED = KEYWORDS | frozenset(_LIBRARY.split())
MAX_LENGTH = 100
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def is_clean(name: str) -> bool:
    """May it be part of a name in C? Compared without case, because macros are made of it."""
    return _IDENTIFIER.fullmatch(name) is not None and len(name) <= MAX_LENGTH and name.lower() not in KEYWORDS and name != "_"
