"""Some Cortex-M7 compute in single precision alone: their firmware has no instruction for doubles."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from elftools.elf.elffile import ELFFile
from onnx import TensorProto, helper

from intaglio import compile

capstone = pytest.importorskip("capstone")


def doubles(folder: Path, board: str) -> int:
    """Instructions that compute with doubles."""
    kinds = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [1, 8]) for name in ("x", "y")]
    nodes = [helper.make_node("Mul", ["x", "x"], ["m"]), helper.make_node("Exp", ["m"], ["y"])]
    graph = helper.make_graph(nodes, "g", kinds[:1], kinds[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "d.onnx")
    package = compile(folder / "d.onnx", output=folder / board, board=board)
    assert package.validate().ok
    with open(package.folder / "bin" / "d.elf", "rb") as file:
        section = ELFFile(file).get_section_by_name(".text")
        assert section is not None
        code = section.data()
    decoder = capstone.Cs(capstone.CS_ARCH_ARM, capstone.CS_MODE_THUMB | capstone.CS_MODE_MCLASS)
    decoder.skipdata = True
    names = [i.mnemonic for i in decoder.disasm(code, 0)]
    return sum(".f64" in name and not name.startswith("vmov") for name in names)


def test_a_board_without_doubles_computes_them_in_software(tmp_path: Path) -> None:
    pytest.importorskip("unicorn")
    assert doubles(tmp_path, "nucleo-f746zg") == 0
    assert doubles(tmp_path, "nucleo-h743zi") > 0
