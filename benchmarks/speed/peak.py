"""The measured peak of fused multiply-adds of one core, and what the processor is: what stands on top of the report."""

from __future__ import annotations

import ctypes
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

FEATURES = (
    "avx", "fma", "f16c", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "amx_int8", "asimd", "asimddp",
    "i8mm", "sve", "bf16",
)  # fmt: skip
ROUNDS = 200_000


class Peak:
    """Chains of multiply-adds in registers, built once for this processor."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "peak.so"
        flags = ["-O3", "-march=native", "-mprefer-vector-width=512", "-ffp-contract=fast", "-fPIC", "-shared"]
        if platform.machine() not in ("x86_64", "AMD64"):
            flags.remove("-mprefer-vector-width=512")
        source = Path(__file__).with_name("peak.c")
        subprocess.run([sys.executable, "-m", "ziglang", "cc", *flags, str(source), "-o", str(path)], check=True)
        library = ctypes.CDLL(str(path))
        self._run, self._macs = library.peak_run, library.peak_macs
        self._run.argtypes = self._macs.argtypes = [ctypes.c_long]
        self._run.restype, self._macs.restype = ctypes.c_float, ctypes.c_long

    def macs_per_ms(self) -> float:
        start = time.process_time()
        self._run(ROUNDS)
        return float(self._macs(ROUNDS)) / ((time.process_time() - start) * 1e3)


def processor() -> str:
    """Its name and those features that matter here."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    name = re.search(r"model name\s*: (.*)", text)
    flags = re.search(r"(?:flags|Features)\s*: (.*)", text)
    known = set(flags.group(1).split()) if flags else set()
    features = [f for f in FEATURES if f in known]
    return f"{name.group(1).strip() if name else platform.machine()} ({', '.join(features) or 'no vector features known'})"
