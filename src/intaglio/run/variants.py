"""Which variant of a package runs on this machine, and how each is built."""

from __future__ import annotations

from collections.abc import Iterator

from intaglio.errors import UserError, quoted
from intaglio.package.manifest import Manifest, VariantInfo, target_of
from intaglio.targets.target import Target, find_target, lacking, runs_here
from intaglio.targets.variants import as_wished


def chosen_variant(manifest: Manifest, asked: str | None) -> VariantInfo | None:
    """The one that is asked for, by the name of its target or its folder; else the best that runs here. None where a package has
    no variants."""
    if asked is None:
        best = (info for info in manifest.variants if runs_here(find_target(info.target)))
        return next(best, manifest.variants[-1] if manifest.variants else None)
    known = ", ".join(f"`{info.target}`" for info in manifest.variants)
    hint = f"variants of `{manifest.name}`: {known}" if known else f"`{manifest.name}` was compiled without `--variants`"
    for info in manifest.variants:
        if asked in (info.target, info.folder):
            if missing := lacking_here(info):
                what = f"this machine cannot run the variant `{info.target}`: its processor lacks {', '.join(missing)}"
                raise UserError("cannot-run", what, hint="omit `--variant`: the best that runs here is used")
            return info
    raise UserError("unknown-variant", f"`{manifest.name}` has no variant {quoted(asked)}", hint=hint)


def lacking_here(info: VariantInfo) -> tuple[str, ...]:
    """What a variant needs and this machine does not have."""
    target = find_target(info.target)
    return lacking(target) or (() if runs_here(target) else (target.arch,))


def variant_targets(manifest: Manifest) -> tuple[tuple[str, Target], ...]:
    """Folders below `src`, with what their C is compiled for."""
    return tuple(_targets(manifest))


def _targets(manifest: Manifest) -> Iterator[tuple[str, Target]]:
    own = target_of(manifest)
    for info in manifest.variants:
        yield info.folder, as_wished(find_target(info.target), own)
