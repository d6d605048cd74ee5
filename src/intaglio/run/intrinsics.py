"""Read less of the compiler's own headers: a processor without AVX-512 does not need its intrinsics, and one with it few of them.

`<immintrin.h>` includes the intrinsics of every instruction set. gcc 12 takes 0.46 s for it, and 0.08 s without those of AVX-512:
in a small package, most of the time of the compiler. Our kernels for AVX-512 use those of F, BW, DQ and VNNI, on whole vectors
alone: 0.17 s instead of 0.33 (another machine). The include guards of these headers are defined on the command line. The C and
its object stay the same; a build without the flags just takes longer.
"""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

from intaglio.run.toolchains import Toolchain, output_of
from intaglio.targets.target import Target

WITHOUT_AVX512 = ("avx2", "avx2_vnni")
USED = {"avx512": ("f", "vl", "bw", "dq"), "avx512_vnni": ("f", "vl", "bw", "dq", "vnni")}  # VL has types that BW needs
# Whether a compiler can do without the headers is tried: in another version, one that is kept may need one that is not.
_PROBE = """#include <immintrin.h>
__m256 probe(__m256 a, __m128i b, __m256i c);
__m256 probe(__m256 a, __m128i b, __m256i c)
{
    return _mm256_fmadd_ps(a, _mm256_cvtph_ps(b), _mm256_cvtepi32_ps(_mm256_madd_epi16(c, _mm256_abs_epi8(c))));
}
"""
_PROBE_512 = """
__m512 probe512(__m512 a, __m512i b, __mmask16 some);
__m512 probe512(__m512 a, __m512i b, __mmask16 some)
{
    const __m512i sums = _mm512_madd_epi16(_mm512_shuffle_epi8(b, b), _mm512_maddubs_epi16(b, b));
    const __m512 x = _mm512_mask_blend_ps(some, _mm512_xor_ps(a, _mm512_cvtepi32_ps(sums)), a);
    return _mm512_set1_ps(_mm512_reduce_add_ps(_mm512_roundscale_ps(_mm512_fmadd_ps(x, x, a), 0)));
}
"""
_SPARED = re.compile(r"^\s*#\s*include\s*<(\w*(?:avx512|avx10|amx|vaes|vpclmul|gfni|neconvert|sm4)\w*\.h)>", re.MULTILINE)
_GUARD = re.compile(r"^\s*#\s*ifndef\s+(\w+)\s*\n\s*#\s*define\s+\1\b", re.MULTILINE)


def spared_headers(toolchain: Toolchain, target: Target) -> tuple[str, ...]:
    """Flags that define the include guards of intrinsics which no kernel of the target uses; none where there is nothing to
    spare."""
    if target.isa in WITHOUT_AVX512:
        return tuple(f"-D{guard}" for guard in _guards(toolchain, ()))
    used = USED.get(target.isa)
    return () if used is None else tuple(f"-D{guard}" for guard in _guards(toolchain, used))


def probe_text(target: Target) -> str:
    """C that needs what is left."""
    return _PROBE + (_PROBE_512 if target.isa in USED else "")


@cache
def _guards(toolchain: Toolchain, used: tuple[str, ...]) -> tuple[str, ...]:
    folder = _folder_of_headers(toolchain)
    kept = {f"avx512{part}intrin.h" for part in used}
    try:
        listed = _SPARED.findall((folder / "immintrin.h").read_text(encoding="utf-8", errors="replace"))
        names = [name for name in listed if name not in kept]
        texts = [(folder / name).read_text(encoding="utf-8", errors="replace") for name in names]
    except OSError:
        return ()
    return tuple(dict.fromkeys(found[1] for text in texts if (found := _GUARD.search(text)) is not None))


def _folder_of_headers(toolchain: Toolchain) -> Path:
    """The compiler's own; an empty folder name where it does not say."""
    if toolchain.kind == "gcc":
        return Path((output_of((*toolchain.compiler, "-print-file-name=include")) or "").strip())
    if toolchain.kind == "clang":
        return Path((output_of((*toolchain.compiler, "-print-resource-dir")) or "").strip()) / "include"
    found = importlib.util.find_spec("ziglang") if toolchain.kind == "zig" else None
    return Path(found.origin).parent / "lib" / "include" if found is not None and found.origin is not None else Path()
