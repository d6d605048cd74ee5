"""The CMSIS-NN that the user has: where it is, what it defines, and which of its files a package needs.

Nothing of it comes with this plug-in. Its C files are read as text: every `arm_...` function that a file of the package names is
looked up in `Source`, and so on until nothing is missing. Functions behind an `#if` count too: the compiler knows the core, we need
not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

VARIABLE = "CMSIS_NN_PATH"
SINGLE = "CMSIS_NN_USE_SINGLE_ROUNDING"  # as the macro of CMSIS-NN; `dense` is for the files of fully connected layers alone
HEADER = "arm_nnfunctions.h"
CALLS = "cmsis_nn_calls.h"  # ours: what the generated code includes

# Functions that the generated code calls, with the number of their parameters: a version that has others is not called wrongly.
PARAMETERS = {
    "arm_convolve_wrapper_s8": 11,
    "arm_convolve_wrapper_s8_get_buffer_size": 4,
    "arm_convolve_s8": 12,
    "arm_convolve_s8_get_buffer_size": 2,
    "arm_depthwise_conv_wrapper_s8": 11,
    "arm_depthwise_conv_wrapper_s8_get_buffer_size": 4,
    "arm_fully_connected_s8": 11,
    "arm_fully_connected_per_channel_s8": 11,
    "arm_fully_connected_s8_get_buffer_size": 1,
    "arm_vector_sum_s8": 7,
    "arm_elementwise_add_s8": 16,
    "arm_max_pool_s8": 7,
    "arm_avgpool_s8": 7,
    "arm_avgpool_s8_get_buffer_size": 2,
    "arm_softmax_s8": 7,
}

DENSE = ("arm_fully_connected_s8", "arm_fully_connected_per_channel_s8")

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_DEFINITION = re.compile(r"\b(arm_\w+)\s*\(([^(){};]*)\)\s*\{")
_NAME = re.compile(r"\barm_\w+\b")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
_PACKAGED = re.compile(r"([A-Za-z_][\w-]*/)*[A-Za-z_][\w-]*\.h", re.ASCII)

_ONCE = f"""#ifndef {SINGLE}
#define {SINGLE}
#endif
"""
# The library's own warnings are not those of the package: it is built with the flags of the user, who may want errors of them.
_QUIET = """#if defined(__clang__)
#pragma clang diagnostic ignored "-Weverything"
#elif defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif
"""


@dataclass(frozen=True, slots=True, eq=False)
class Library:
    include: Path
    sources: dict[str, Path]  # by file name
    defines: dict[str, str]  # functions of `Source`, and the file of each
    parameters: dict[str, int]

    def problem(self, *names: str) -> str | None:
        """Why these functions cannot be called."""
        for name in names:
            if name not in self.defines:
                return f"this version of CMSIS-NN has no `{name}`"
            if (found := self.parameters[name]) != PARAMETERS[name]:
                return f"`{name}` of this version of CMSIS-NN has {found} parameters, and {PARAMETERS[name]} are given"
        return None

    def dense_alone(self) -> tuple[set[str], str | None]:
        """Files that only fully connected layers use; and why they cannot be built with a rounding of their own."""
        others = self._needed(name for name in self._called() if name not in DENSE)
        theirs = self._needed(name for name in self._called() if name in DENSE)
        shared = [name for name in theirs if name in others and "requantize" in _plain(_read(self.sources[name]))]
        reason = f"`{shared[0]}` of this version of CMSIS-NN is not for fully connected layers alone" if shared else None
        return set(theirs) - set(others), reason

    def files(self) -> dict[str, str]:
        """By the names that they have in a package: sources flat, headers as they are included."""
        sources, word = self._needed(self._called()), rounding()
        once = set(sources) if word == "once" else self.dense_alone()[0] if word == "dense" else set()
        texts = {name: _read(self.sources[name]) for name in sources}
        made = {name: (_ONCE if name in once else "") + _QUIET + text for name, text in texts.items()}
        todo = [(self.sources[name].parent, text) for name, text in texts.items()]
        todo.append((self.include, f'#include "{HEADER}"\n'))
        while todo:
            folder, text = todo.pop()
            for name in _INCLUDE.findall(text):
                path = next((p for p in (folder / name, self.include / name) if p.is_file()), None)
                known = None if path is None else self._packaged(path)
                if path is not None and known is not None and known not in made:
                    made[known] = _read(path)
                    todo.append((path.parent, made[known]))
        return {**{name: made[name] for name in sorted(made)}, CALLS: _calls(word == "once")}

    def _called(self) -> list[str]:
        return [name for name in PARAMETERS if self.problem(name) is None]

    def _packaged(self, path: Path) -> str | None:
        """What a header is called in a package."""
        whole, root = path.resolve(), self.include.resolve()
        name = whole.relative_to(root).as_posix() if whole.is_relative_to(root) else whole.name
        return name if _PACKAGED.fullmatch(name) else None

    def _needed(self, functions: Iterable[str]) -> list[str]:
        found: list[str] = []
        todo = [self.defines[name] for name in functions]
        while todo:
            file = todo.pop()
            if file in found:
                continue
            found.append(file)
            text = _plain(_read(self.sources[file]))
            own = {name for name, _ in _DEFINITION.findall(text)}
            todo += [self.defines[name] for name in sorted(set(_NAME.findall(text)) - own) if name in self.defines]
        return sorted(found)


def find_library() -> Library | str:
    """The user's CMSIS-NN, or why there is none and what to do about it."""
    said = os.environ.get(VARIABLE, "")
    if not said:
        return (
            f"the environment variable `{VARIABLE}` is not set: give it the folder of a checkout of CMSIS-NN "
            "(https://github.com/ARM-software/CMSIS-NN), with `Include` and `Source` in it"
        )
    root = Path(said)
    missing = [part for part in (f"Include/{HEADER}", "Source") if not (root / part).exists()]
    if missing:
        return f"`{VARIABLE}` is `{said}`, which has no `{missing[0]}`: it should be the folder of a checkout of CMSIS-NN"
    try:
        return _scanned(root)
    except OSError as error:
        return f"`{VARIABLE}` is `{said}`, which cannot be read: {error.strerror}"


def rounding() -> str:
    """How the user wants the library built: `twice` as it comes, `once`, or `dense` (fully connected layers once, others twice)."""
    word = os.environ.get(SINGLE, "")
    return "twice" if word in ("", "0") else "dense" if word == "dense" else "once"


@lru_cache(maxsize=8)
def _scanned(root: Path) -> Library:
    sources = {path.name: path for path in sorted((root / "Source").rglob("*.c"))}
    defines: dict[str, str] = {}
    parameters: dict[str, int] = {}
    for name, path in sources.items():
        for function, inside in _DEFINITION.findall(_plain(_read(path))):
            defines.setdefault(function, name)
            parameters.setdefault(function, inside.count(",") + 1)
    return Library(root / "Include", sources, defines, parameters)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _plain(text: str) -> str:
    return _COMMENT.sub(" ", text)


def _calls(once: bool) -> str:
    """A library that rounds in another way than was compiled for gives other results: that is an error of the build."""
    wrong = f"""#ifdef {SINGLE}
#error "this package is for a CMSIS-NN that rounds twice: set {SINGLE} in the environment of intaglio, not in its flags"
#endif
"""
    return f"""/* The interface of CMSIS-NN, without the warnings of its headers. */
#ifndef CMSIS_NN_CALLS_H
#define CMSIS_NN_CALLS_H
#pragma GCC system_header
{"" if once else wrong}#include "{HEADER}"
#endif
"""
