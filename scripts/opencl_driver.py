"""Is there an OpenCL device here whose compiler takes kernels? Exit code 1: no, though there is a driver.

`make` installs Intel's driver then (extra `opencl-intel`).
"""

from __future__ import annotations

import sys

from intaglio.errors import IntaglioError
from intaglio.run.opencl.loader import find_loader


def main() -> int:
    try:
        return 0 if find_loader().answer.whole else 1
    except IntaglioError:
        return 0  # another machine, which PoCL has no wheel for


if __name__ == "__main__":
    sys.exit(main())
