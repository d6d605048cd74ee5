"""`.pt2` files written by hand, without torch: good ones, and ones with a single thing wrong."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.ir.graph import Array

FLOAT, LONG, CHAR = 7, 5, 2


def meta(shape: tuple[int, ...], dtype: int = FLOAT) -> dict[str, Any]:
    strides: list[dict[str, int]] = []
    step = 1
    for n in reversed(shape):
        strides.insert(0, {"as_int": step})
        step *= n
    return {
        "dtype": dtype, "sizes": [{"as_int": n} for n in shape], "requires_grad": False, "device": {"type": "cpu", "index": None},
        "strides": strides, "storage_offset": {"as_int": 0}, "layout": 7,
    }  # fmt: skip


def tensor(name: str) -> dict[str, Any]:
    return {"as_tensor": {"name": name}}


def node(target: str, inputs: dict[str, Any], output: str, module: str = "") -> dict[str, Any]:
    stack = f"L__self__,,my.Net;L__self__{module},{module},torch.nn.modules.linear.Linear" if module else "L__self__,,my.Net"
    return {
        "target": target, "inputs": [{"name": n, "arg": a, "kind": 1} for n, a in inputs.items()], "outputs": [tensor(output)],
        "metadata": {"nn_module_stack": stack}, "is_hop_single_tensor_return": None, "name": output,
    }  # fmt: skip


class Pt2:
    """y = relu(x w^T + b), in pieces that a test may change before `save`."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.arrays = {"fc.weight": rng.standard_normal((3, 4)).astype(np.float32), "fc.bias": np.ones(3, np.float32)}
        weights = {"input": tensor("x"), "weight": tensor("p_w"), "bias": tensor("p_b")}
        self.nodes = [
            node("torch.ops.aten.linear.default", weights, "linear", "fc"),
            node("torch.ops.aten.relu.default", {"self": tensor("linear")}, "relu"),
        ]
        self.metas = {"p_w": meta((3, 4)), "p_b": meta((3,)), "x": meta((2, 4)), "linear": meta((2, 3)), "relu": meta((2, 3))}
        self.input_specs: list[dict[str, Any]] = [
            {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "fc.weight"}},
            {"parameter": {"arg": {"name": "p_b"}, "parameter_name": "fc.bias"}},
            {"user_input": {"arg": tensor("x")}},
        ]
        self.output_specs: list[dict[str, Any]] = [{"user_output": {"arg": tensor("relu")}}]
        self.config: dict[str, dict[str, Any]] = {
            name: {"path_name": f"weight_{n}", "is_param": True, "use_pickle": False, "tensor_meta": meta(array.shape)}
            for n, (name, array) in enumerate(self.arrays.items())
        }
        self.files: dict[str, bytes] = {
            f"data/weights/weight_{n}": array.tobytes() for n, array in enumerate(self.arrays.values())
        } | {"byteorder": b"little", "archive_format": b"pt2", "data/sample_inputs/model.pt": b"\x80\x02not opened"}
        self.root = "net"

    def json(self) -> dict[str, Any]:
        graph = {
            "inputs": [tensor(n) for n in ("p_w", "p_b", "x")], "outputs": [s["user_output"]["arg"] for s in self.output_specs],
            "nodes": self.nodes, "tensor_values": self.metas, "sym_int_values": {}, "sym_bool_values": {},
            "is_single_tensor_return": False, "custom_obj_values": {}, "sym_float_values": {},
        }  # fmt: skip
        signature = {"input_specs": self.input_specs, "output_specs": self.output_specs}
        return {
            "graph_module": {"graph": graph, "signature": signature, "module_call_graph": []}, "opset_version": {"aten": 10},
            "range_constraints": {}, "schema_version": {"major": 8, "minor": 20}, "torch_version": "2.15.0",
        }  # fmt: skip

    def save(self, path: Path, *, program: str | None = None, compression: int = zipfile.ZIP_STORED) -> Path:
        text = json.dumps(self.json()) if program is None else program
        with zipfile.ZipFile(path, "w", compression) as archive:
            archive.writestr(f"{self.root}/models/model.json", text)
            archive.writestr(f"{self.root}/data/weights/model_weights_config.json", json.dumps({"config": self.config}))
            archive.writestr(f"{self.root}/data/constants/model_constants_config.json", json.dumps({"config": {}}))
            for name, data in self.files.items():
                archive.writestr(f"{self.root}/{name}", data)
        return path

    def expected(self, x: Array) -> Array:
        return np.asarray(np.maximum(x @ self.arrays["fc.weight"].T + self.arrays["fc.bias"], 0))
