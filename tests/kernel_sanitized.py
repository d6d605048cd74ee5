"""Run as a program, with the sanitizers loaded first: calls every kernel of a library once. `kernel_sanitized.py LIBRARY ISA`."""

from __future__ import annotations

import ctypes
import sys

from kernel_cases import CASES
from kernel_running import TARGETS, call_compiled, prepare
from kernel_tiles import TILED


def main(path: str, isa: str) -> None:
    library = ctypes.CDLL(path)
    cases = {**CASES, **TILED}
    for n, (name, case) in enumerate(cases.items()):
        call = prepare(case, TARGETS[isa])
        call.lowered.kernel.name = f"k{n}"
        print(name, flush=True)
        assert call_compiled(library, call) == 0, name
    print(f"{len(cases)} kernels")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
