"""Modules and exported programs of a running torch, saved as `.pt2`, so that there is one way in."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import MethodType
from typing import Any

from intaglio.errors import ModelError, ToolError, UserError, install_hint, quoted
from intaglio.frontends.torch.dynamic import in_floats
from intaglio.frontends.torch.loading import check
from intaglio.frontends.torch.nested import writable
from intaglio.frontends.torch.packed import padded_sequences
from intaglio.frontends.torch.structures import fields_as_dictionaries, rows_of_tensors


def save_object(model: object, example_inputs: tuple[object, ...] | None, path: Path) -> None:
    """The object as a file that `load` reads. What has no row is decomposed by torch first."""
    torch = _torch()
    program = model if isinstance(model, torch.export.ExportedProgram) else _exported(torch, model, example_inputs)
    _save(torch, program, path)
    before = _problems(path)
    if before:
        other = path.with_name(f"{path.stem}.core.pt2")
        try:
            _save(torch, program.run_decompositions(), other)
        except UserError:
            raise
        except Exception as error:  # whatever a decomposition raises
            raise ModelError("cannot-export", f"torch does not decompose the model: {_told(error)}") from None
        if _problems(other) < before:
            other.replace(path)


def as_module(method: MethodType) -> object:
    """A method of a module, as a module that has it as `forward`: with its weights, its mode and its names of inputs."""
    owner: Any = method.__self__

    class Method(_torch().nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = owner
            self.training = owner.training

            def forward(*args: Any, **kwargs: Any) -> Any:
                return method(*args, **kwargs)

            forward.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
            self.forward = forward

    return Method()


def _torch() -> Any:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "export"):
        hint = f"run {install_hint('torch')}"
        raise ToolError("no-framework", "torch 2.9 or newer is needed to export a module", hint=hint)

    return torch


def _exported(torch: Any, model: Any, example_inputs: tuple[object, ...] | None) -> Any:
    if not isinstance(model, torch.nn.Module):
        hint = "give a `torch.nn.Module` with `example_inputs=`, or what `torch.export.export` returns"
        raise UserError("not-a-model", f"{quoted(type(model).__name__)} is neither a module nor an exported program", hint=hint)
    if example_inputs is None:
        hint = "for instance `intaglio.compile(model, example_inputs=(torch.zeros(1, 3, 224, 224),))`"
        raise UserError("no-example", "a module needs `example_inputs`, which define the shapes of its inputs", hint=hint)
    inputs = tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    training = [module for module in model.modules() if module.training]
    try:
        if isinstance(model, torch.jit.ScriptModule):
            return _from_script(model, inputs)
        with in_floats(torch, model.eval()) as plain, fields_as_dictionaries(plain), padded_sequences(torch):
            return torch.export.export(plain, inputs)
    except ModelError:
        raise
    except Exception as error:  # torch raises of many kinds, user code of any
        hint = "`torch.export.export(model, example_inputs)` shows the details; see PyTorch's guide to torch.export"
        raise ModelError("cannot-export", f"torch does not export the model: {_told(error)}", hint=hint) from None
    finally:
        for module in training:
            module.training = True


def _from_script(model: Any, inputs: tuple[object, ...]) -> Any:
    """TorchScript, traced or scripted, by torch's own converter: `torch.export.export` names it for such modules."""
    from torch._export.converter import TS2EPConverter  # type: ignore[import-not-found, unused-ignore]

    try:
        return TS2EPConverter(model.eval(), inputs).convert()
    except Exception as error:  # its assertions ask for a report to PyTorch
        known = "INTERNAL ASSERT" not in str(error)
        told = _told(error) if known else "it has control flow, or arguments that are no tensors"
        hint = "only traced modules, and scripted ones without loops and numbers as arguments, convert: give the original module, "
        hint += "or what `torch.jit.trace(module, example_inputs)` returns"
        raise ModelError("cannot-export", f"torch does not convert the TorchScript module: {told}", hint=hint) from None


def _save(torch: Any, program: Any, path: Path) -> None:
    program = writable(torch, program)
    try:
        with rows_of_tensors(program):
            torch.export.save(program, str(path))
    except Exception as error:
        hint = "carry tensors in loops and branches, not numbers: `torch.tensor(0)` instead of `0`" if _in_graph(error) else ""
        raise ModelError("cannot-export", f"torch does not save the exported program: {_told(error)}", hint=hint) from None


def _in_graph(error: BaseException | None) -> bool:
    """Is it about a branch or a loop?"""
    return error is not None and ("higher_order" in str(error) or _in_graph(error.__cause__))


def _problems(path: Path) -> int:
    """How many; a file that cannot be read at all has one."""
    try:
        return len(check(path, dims={}, shapes={}))
    except ModelError:
        return 1


def _told(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return quoted(lines[0] if lines else type(error).__name__, 300)
