"""Tests that need PoCL, which comes by pip with the development set-up."""

from __future__ import annotations

import pytest

from intaglio.run.opencl.answers import ask
from intaglio.run.opencl.loader import _pip_environment, is_pocl, pip_drivers, pip_loader


def _missing() -> str:
    drivers, library = tuple(driver for driver in pip_drivers() if is_pocl(driver)), pip_loader()
    if not drivers or library is None:
        return "PoCL is not installed: pip install -e '.[opencl]'"
    answer = ask(str(library), _pip_environment(drivers, str(library)))
    return "" if answer.whole else "the compiler of PoCL does not know this processor"


_REASON = _missing()
needs_pocl = pytest.mark.skipif(bool(_REASON), reason=_REASON)
