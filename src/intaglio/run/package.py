"""A package as an object: run it, compare it, time it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from intaglio.errors import UserError, counted
from intaglio.ir.graph import Array
from intaglio.package.manifest import TensorInfo
from intaglio.run.loaded import LoadedPackage

if TYPE_CHECKING:
    from intaglio.quantize.settings import Account
    from intaglio.run.accuracy import Labelled
    from intaglio.run.timing import Profile
    from intaglio.run.validate import Validation


class Package(LoadedPackage):
    """`Package.load(folder)`; `compile()` returns one. `notes`: what the compile had to say. `validation`: the last result of
    `validate()`."""

    notes: tuple[str, ...] = ()
    validation: Validation | None = None

    @property
    def quantization(self) -> Account | None:
        """What quantisation did and what it cost, layer by layer; None: Intaglio did not quantise it, or `no_ir` left this out."""
        path = self.folder / "ir" / "quantization.json"
        if not path.is_file():
            return None
        from intaglio.quantize.settings import Account

        try:
            return Account.of_json(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError):
            hint = "compile the model again"
            raise UserError("bad-package", "`ir/quantization.json` is damaged", where=str(self.folder), hint=hint) from None

    @property
    def accuracy(self) -> Labelled | None:
        """Shares of the calibration data that are classified as in `labels`; None: there were no labels."""
        from intaglio.run.accuracy import kept_accuracy

        return kept_accuracy(self.folder)

    def validate(
        self, inputs: Mapping[str, Array] | None = None, *, layers: bool = False, threshold: float | None = None
    ) -> Validation:
        from intaglio.run.validate import ValidateOptions, validate

        self.validation = validate(self, ValidateOptions(inputs=inputs, layers=layers, threshold=threshold))
        return self.validation

    def __call__(self, *arrays: Array, **named: Array) -> Array | dict[str, Array]:
        """`package(x)`: arrays in the order of the inputs, or by name. An array may lack the leading 1 of a batch, or have several
        samples there, which run one after the other; doubles, which numpy makes, become floats. One output is returned as it is,
        several by name."""
        inputs = self.manifest.inputs
        if len(arrays) > len(inputs):
            what = f"`{self.name}` takes {counted(len(inputs), 'array')}, not {len(arrays)}"
            raise UserError("wrong-input", what, hint=f"in order: {', '.join(f'`{i.name}`' for i in inputs)}")
        fields = {info.field: info.name for info in inputs}
        given = {fields.get(name, name): np.asarray(value) for name, value in named.items()}
        for info, array in zip(inputs, arrays, strict=False):
            if info.name in given:
                raise UserError("wrong-input", f"`{info.name}` is given twice")
            given[info.name] = np.asarray(array)
        doubles = [info.name for info in inputs if info.dtype == "f32" and info.name in given]
        given |= {name: given[name].astype(np.float32) for name in doubles if given[name].dtype == np.float64}
        samples = {_samples(given[info.name], info) for info in inputs if info.name in given}
        count = max(samples, default=0)
        if count == 0 or len(samples) != 1:
            return self._one(given)
        parts = [self._one({name: array[n : n + 1] for name, array in given.items()}) for n in range(count)]
        first = parts[0]
        if isinstance(first, dict):
            return {name: np.concatenate([part[name] for part in parts if isinstance(part, dict)]) for name in first}
        return np.concatenate([part for part in parts if not isinstance(part, dict)])

    def _one(self, given: Mapping[str, Array]) -> Array | dict[str, Array]:
        alone = {info.name for info in self.manifest.inputs if info.name in given and _is_one((1, *given[info.name].shape), info)}
        whole = {n: a[None] if n in alone else a for n, a in given.items()}
        results = self.run(whole)
        return next(iter(results.values())) if len(results) == 1 else results

    def _repr_html_(self) -> str:
        """The head of its report, in a notebook."""
        m = self.manifest
        rows = [("target", m.target), ("layers", f"{len(m.layers):,}"), ("multiply-adds", f"{sum(x.macs for x in m.layers):,}")]
        rows += [("arena", f"{m.memory.arena_bytes:,} bytes"), ("weights", f"{m.memory.weight_bytes:,} bytes")]
        if m.firmware is not None:
            rows += [("RAM", f"{m.firmware.ram_bytes:,} bytes"), ("flash", f"{m.firmware.flash_bytes:,} bytes")]
        for label, infos in (("in", m.inputs), ("out", m.outputs)):
            rows += [(label, f"{i.name}: {i.dtype}[{', '.join(map(str, i.shape))}]") for i in infos]
        body = "".join(f"<tr><th style='text-align:left'>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows)
        return f"<b>{escape(m.name)}</b> from <code>{escape(m.model.file)}</code><table>{body}</table>"

    def profile(
        self, runs: int | None = None, *, sizes: Mapping[str, int] | None = None, inputs: Mapping[str, Array] | None = None
    ) -> Profile:
        """`sizes`: of a package that was compiled for a range; the largest without. `inputs`: instead of its test vectors."""
        from intaglio.run.profile import chosen, profile

        package, arrays = chosen(self, sizes or {}, inputs)
        return profile(package, runs, inputs=arrays)


def _samples(array: Array, info: TensorInfo) -> int:
    """How many samples an array holds beyond the batch of 1 that the model takes; 0: it is for the model as it is."""
    several = array.ndim > 0 and array.shape[0] > 1 and _is_one((1, *array.shape[1:]), info)
    return array.shape[0] if several else 0


def _is_one(shape: tuple[int, ...], info: TensorInfo) -> bool:
    """A batch of one, as the model takes it, with any size where the caller gives it?"""
    dims = info.dims or tuple(map(str, info.shape))
    alike = len(shape) == len(dims) and all(n == int(text) for text, n in zip(dims, shape, strict=True) if text.isdigit())
    return alike and dims[:1] == ("1",)
