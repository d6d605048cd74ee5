"""The models beside the project: here and in continuous integration, not on a user's machine."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared" / "models"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not beside the project")
