"""How many examples hypothesis tries: in `make test` a fifth of what `make test-all` tries, where one example takes long."""

from __future__ import annotations

import os

VARIABLE = "INTAGLIO_QUICK_EXAMPLES"  # set in tests/conftest.py, for all processes of a run


def examples(count: int) -> int:
    return -(-count // 5) if VARIABLE in os.environ else count
