"""What a processor can do, in words of 32 bits that its C reads once: which bit says what.

Names are those of /proc/cpuinfo, as in the `needs` of a target. On x86 the words are registers of cpuid, and the states that the
operating system saves (xgetbv): without these, AVX and AVX-512 must not be used, whatever the processor says. On Arm they are the
words of getauxval. Bits: Intel's Software Developer's Manual, volume 2A, CPUID; volume 1, 13.3; Linux' asm/hwcap.h.
"""

from __future__ import annotations

from collections.abc import Sequence

X86_WORDS = ("leaf1_ecx", "leaf7_ebx", "leaf7_ecx", "leaf7_1_eax", "extended_ecx", "states")
ARM_WORDS = ("hwcap", "hwcap2")
WORDS = {"x86_64": X86_WORDS, "aarch64": ARM_WORDS}

BITS: dict[str, tuple[str, int]] = {
    "ssse3": ("leaf1_ecx", 9),
    "fma": ("leaf1_ecx", 12),
    "cx16": ("leaf1_ecx", 13),
    "sse4_1": ("leaf1_ecx", 19),
    "sse4_2": ("leaf1_ecx", 20),
    "movbe": ("leaf1_ecx", 22),
    "popcnt": ("leaf1_ecx", 23),
    "f16c": ("leaf1_ecx", 29),
    "bmi1": ("leaf7_ebx", 3),
    "avx2": ("leaf7_ebx", 5),
    "bmi2": ("leaf7_ebx", 8),
    "avx512f": ("leaf7_ebx", 16),
    "avx512dq": ("leaf7_ebx", 17),
    "avx512cd": ("leaf7_ebx", 28),
    "avx512bw": ("leaf7_ebx", 30),
    "avx512vl": ("leaf7_ebx", 31),
    "avx512_vnni": ("leaf7_ecx", 11),
    "avx_vnni": ("leaf7_1_eax", 4),
    "lahf_lm": ("extended_ecx", 0),
    "abm": ("extended_ecx", 5),
    "asimddp": ("hwcap", 20),
    "i8mm": ("hwcap2", 13),
}
AVX_STATES = 0x6  # registers of SSE and AVX
AVX512_STATES = 0xE6  # with masks, the upper halves and the other sixteen registers


def needed_bits(arch: str, needs: Sequence[str]) -> tuple[int, ...]:
    """By word of the architecture: the bits that have to be set."""
    found = dict.fromkeys(WORDS[arch], 0)
    for name in needs:
        word, bit = BITS[name]
        found[word] |= 1 << bit
    if any(name.startswith("avx512") for name in needs):
        found["states"] |= AVX512_STATES
    elif any(name.startswith("avx") or name in ("fma", "f16c") for name in needs):
        found["states"] |= AVX_STATES
    return tuple(found.values())
