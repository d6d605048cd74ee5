"""How to use this very package: text to copy."""

from __future__ import annotations

from intaglio.package.c_text import identifier, kconfig
from intaglio.package.manifest import Manifest, TensorInfo
from intaglio.report.facts import Snippet

_C_TYPES = {"f32": "float", "f64": "double", "i8": "int8_t", "u8": "uint8_t", "i16": "int16_t", "u16": "uint16_t",
            "i32": "int32_t", "u32": "uint32_t", "i64": "int64_t", "u64": "uint64_t", "bool": "uint8_t"}  # fmt: skip


def snippets_of(manifest: Manifest) -> tuple[Snippet, ...]:
    found = [Snippet("Python", "python", _python(manifest))]
    if manifest.opencl is None:
        found.insert(0, Snippet("C", "c", _c(manifest)))
        if not manifest.target.startswith("wasm"):
            found.append(Snippet("CMake", "cmake", _cmake(manifest)))
    if manifest.firmware is not None:
        found.append(Snippet("Zephyr", "cmake", f"# west build -- -DZEPHYR_EXTRA_MODULES={manifest.name}\n"
                                                f"CONFIG_{kconfig(manifest.name)}=y"))  # fmt: skip
    return tuple(found)


def _array(info: TensorInfo) -> str:
    count = 1
    for size in info.shape:
        count *= size
    return f"static {_C_TYPES.get(info.dtype, 'uint16_t')} {info.field}[{max(1, count)}];"


def _c(manifest: Manifest) -> str:
    name = identifier(manifest.name)
    states = {s.input for s in manifest.states}
    inputs = [i for i in manifest.inputs if i.name not in states]
    given = "static" if manifest.options.get("arena") != "caller" else "caller"
    lines = [f'#include "{name}.h"', ""]
    lines += [_array(info) for info in (*inputs, *manifest.outputs)]
    if given == "caller":
        lines.append(f"static _Alignas({name.upper()}_ARENA_ALIGNMENT) unsigned char arena[{name.upper()}_ARENA_BYTES];")
    lines += ["", "int classify(void)", "{"]
    lines.append(f"    const {name}_inputs in = {{ {', '.join(f'.{i.field} = {i.field}' for i in inputs)} }};")
    lines.append(f"    {name}_outputs out = {{ {', '.join(f'.{o.field} = {o.field}' for o in manifest.outputs)} }};")
    call = f"{name}_run(&in, &out)" if given == "static" else f"{name}_run_in(arena, &in, &out)"
    lines += [f"    return {call}; /* 0: everything went well */", "}"]
    return "\n".join(lines)


def _python(manifest: Manifest) -> str:
    arrays = ", ".join(f'"{i.name}": x{n}' for n, i in enumerate(manifest.inputs))
    return "\n".join(["import intaglio", "", f'package = intaglio.Package.load("{manifest.name}")',
                      f"results = package.run({{{arrays}}})"])  # fmt: skip


def _cmake(manifest: Manifest) -> str:
    return f"add_subdirectory({manifest.name})\ntarget_link_libraries(app PRIVATE {manifest.name}::{manifest.name})"


__all__ = ["snippets_of"]
