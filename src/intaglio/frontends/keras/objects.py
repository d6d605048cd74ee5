"""Model objects: saved by Keras into a file that `load` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from intaglio.errors import ModelError, quoted


def save_object(model: Any, path: Path) -> None:
    """The object as a file that `load` reads."""
    try:
        model.save(str(path))
    except Exception as error:  # whatever the classes of the user raise
        raise ModelError("not-a-model", f"Keras does not save the model: {quoted(str(error), 300)}") from None
