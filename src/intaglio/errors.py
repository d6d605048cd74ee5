"""What can go wrong, as a tree.

    IntaglioError                 (never raised itself)
    ├── UserError       exit 2    the request, the model or the machine is at fault
    │   ├── ModelError            the model file: not a model, truncated, malformed, unsupported
    │   └── ToolError             the machine: no compiler, disk full, a tool that failed
    ├── AnswerIsNo      exit 1    the question was understood and the answer is no
    └── OurFault        exit 3    a bug in Intaglio

Each error has a slug (stable, for machines), a sentence with literals in backticks, a place and a hint:

    error[unsupported-operator]: `GridSample` in node `/head/GridSample_3` has no kernel
      --> model.onnx, node 214 of 318

    hint: `intaglio check model.onnx` lists everything that is unsupported
"""

from __future__ import annotations

from pathlib import Path


class IntaglioError(Exception):
    exit_code = 3

    def __init__(self, slug: str, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.slug = slug
        self.message = printable(message)
        self.where = printable(where)
        self.hint = printable(hint)

    def __str__(self) -> str:
        lines = [f"error[{self.slug}]: {self.message}"]
        if self.where:
            lines.append(f"  --> {self.where}")
        if self.hint:
            lines += ["", f"hint: {self.hint}"]
        return "\n".join(lines)


class UserError(IntaglioError):
    exit_code = 2


class ModelError(UserError):
    pass


class ToolError(UserError):
    pass


class AnswerIsNo(IntaglioError):
    exit_code = 1


class OurFault(IntaglioError):
    exit_code = 3


def printable(text: str, limit: int = 2000) -> str:
    """Text from a model, safe to show: one line, no control or bidirectional characters, not endless.

    `Cc`, `Cf` and the like could move the cursor or hide what follows (CVE-2021-42574)."""
    if len(text) > limit:
        text = text[: limit - 3] + "..."
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def quoted(name: str, limit: int = 80) -> str:
    """A name from a model as a literal in a message."""
    return f"`{printable(name, limit)}`"


def counted(count: int, noun: str) -> str:
    """A number with its noun: `1 pair`, `2 pairs`, `2 axes`."""
    if count != 1 and noun.endswith("is"):
        return f"{count:,} {noun[:-2]}es"
    return f"{count:,} {noun}" + ("" if count == 1 else "es" if noun.endswith("s") else "s")


def install_hint(extra: str) -> str:
    """The command that installs an extra: in a checkout, or for a package from pip."""
    checkout = (Path(__file__).parents[2] / "pyproject.toml").is_file()
    return f"`.venv/bin/pip install -e '.[{extra}]'` in the checkout" if checkout else f"`pip install 'intaglio[{extra}]'`"
