"""Variants of a target: the same network compiled for several processors of one architecture, in one library.

    --target x86-64 --variants v3,v4      x86-64-v4, x86-64-v3, x86-64: the first that the processor can run is used

A variant is a target of the same architecture that needs more of the processor. Its short name is what its name has beyond that of
the target which every processor of the architecture can run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from intaglio.errors import UserError, quoted
from intaglio.targets.target import HOSTS, Target, all_targets

FAMILIES = {"x86_64": "x86-64", "aarch64": "aarch64"}  # by architecture, the target that every processor of it can run
_NOT_C = re.compile(r"\W")


@dataclass(frozen=True, slots=True)
class Variant:
    """One of `network`, for `target`. `short` names its folder and, with the network, its C names and files."""

    network: str
    short: str
    target: Target

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def prefix(self) -> str:
        return f"{self.network}_on_{_NOT_C.sub('_', self.short)}"


def short_name(target: Target) -> str:
    return target.name.removeprefix(f"{FAMILIES.get(target.arch, '')}-")


def has_variants(target: Target) -> bool:
    """Is there a way to tell at run time what the processor can do?"""
    return target.name in HOSTS


def richer(target: Target) -> tuple[Target, ...]:
    """What a target can have as variants, best first."""
    hosts = [all_targets()[name] for name in HOSTS]
    return tuple(t for t in hosts if t.arch == target.arch and set(t.needs) > set(target.needs))


def variants_of(target: Target, words: tuple[str, ...], network: str) -> tuple[Variant, ...]:
    """Best first; the last is the target itself, for every other processor. None without words."""
    known = {short_name(t): t for t in richer(target)} if has_variants(target) else {}
    chosen: set[str] = set()
    for word in words:
        found = known.get(short_name(replace(target, name=word)))
        if found is None and word not in (target.name, short_name(target)):
            what = f"`{target.name}` has no variant {quoted(word)}"
            listed = ", ".join(f"`{short}`" for short in known) or "none"
            hint = f"a variant needs more of the processor than the target; available: {listed}"
            if target.arch in FAMILIES and target.name != FAMILIES[target.arch]:
                hint += f"; `--target {FAMILIES[target.arch]}` has more"
            raise UserError("unknown-variant", what, hint=hint)
        chosen |= set() if found is None else {found.name}
    made = [as_wished(t, target) for t in known.values() if t.name in chosen]
    return tuple(Variant(network, short_name(t), t) for t in [*made, target]) if words else ()


def as_wished(variant: Target, target: Target) -> Target:
    """With what the user wants of the target, beyond the processor."""
    wishes = {"optimize": target.optimize, "exact": target.exact, "limited": target.limited, "threads": target.threads}
    return replace(variant, **wishes)  # type: ignore[arg-type]
