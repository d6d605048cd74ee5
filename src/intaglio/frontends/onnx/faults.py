"""Problems inside a model: a `Fault` says what is wrong; the walk adds the node and the file."""

from __future__ import annotations

from dataclasses import dataclass


class Fault(Exception):
    """Something about a node or a tensor that stops the import. Becomes a ModelError with a place."""

    def __init__(self, slug: str, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.slug = slug
        self.reason = reason
        self.hint = hint


def unsupported(reason: str, hint: str = "") -> Fault:
    return Fault("unsupported-operator", reason, hint)


def need_text(*names: str | bytes) -> None:
    """protobuf returns a string that is not UTF-8 as bytes. Such a name is refused."""
    for name in names:
        if isinstance(name, bytes):
            shown = name[:40].decode("utf-8", "replace")
            raise Fault("bad-graph", f"the name `{shown}` is not valid UTF-8", "the file is damaged; export it again")


@dataclass(frozen=True, slots=True)
class Problem:
    """One line of `intaglio check`."""

    node: str
    op: str
    reason: str
    hint: str
    slug: str = "unsupported-operator"
    where: str = ""
