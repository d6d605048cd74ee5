"""MediaPipe's operators on landmarks, against its kernels written out in numpy, matrix by matrix."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from intaglio.errors import ModelError
from intaglio.frontends.tflite import load
from intaglio.ir.graph import Array
from intaglio.ops.evaluate import evaluate_graph
from support.tflite_models import ModelWriter, Tensor

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
SUBSET = [0, 3, 4, 2, 5]


def custom(name: str, options: dict[str, object], inputs: list[Tensor], out: Tensor, folder: Path, version: int = 1) -> Path:
    from flatbuffers import flexbuffers

    w = ModelWriter()
    w.subgraph()
    w.graph.inputs = [w.tensor(t, f"in{n}") for n, t in enumerate(inputs)]
    w.graph.outputs = [w.tensor(out, "out")]
    w.operator("CUSTOM", w.graph.inputs, w.graph.outputs, version=version)
    w.model.operatorCodes[0].customCode = name
    w.graph.operators[0].customOptions = np.frombuffer(flexbuffers.Dumps(options), np.uint8)
    path = folder / "m.tflite"
    path.write_bytes(w.finish())
    return path


def result(path: Path, *arrays: Array) -> Array:
    graph, _ = load(path, dims={}, shapes={})
    values = evaluate_graph(graph, {v.name: a for v, a in zip(graph.inputs, arrays, strict=True)})
    return np.asarray(values[graph.outputs[0].name])


def landmarks(seed: int = 1) -> Array:
    return np.random.default_rng(seed).uniform(10, 180, (6, 3)).astype(np.float32)


def rotation(r: float, size: int) -> Array:
    made = np.eye(size)
    made[:2, :2] = [[math.cos(r), -math.sin(r)], [math.sin(r), math.cos(r)]]
    return made


def shifted(x: float, y: float, size: int) -> Array:
    made = np.eye(size)
    made[:2, -1] = x, y
    return made


def scaled(x: float, y: float, size: int) -> Array:
    return np.diag([x, y, *[1.0] * (size - 2)])


def second_matrix(points: Array, target: float, size: tuple[int, int], scale: tuple[float, float]) -> Array:
    (lx, ly), (rx, ry) = points[1, :2], points[5, :2]
    r = target - math.atan2(ry - ly, rx - lx)
    turned = points[SUBSET, :2].astype(np.float64) @ rotation(r, 2).T
    low, high = turned.min(axis=0), turned.max(axis=0)
    crop = rotation(-r, 2) @ ((low + high) / 2)
    width, height = high - low
    factor = scaled(scale[0] * width / size[0], scale[1] * height / size[1], 4)
    return shifted(crop[0], crop[1], 4) @ rotation(-r, 4) @ factor @ shifted(-size[0] / 2, -size[1] / 2, 4)


@pytest.mark.parametrize("target", [0.0, 1.2])
@pytest.mark.parametrize("same", [False, True])
def test_the_map_of_version_2(target: float, same: bool, tmp_path: Path) -> None:
    points = landmarks()
    points[5] = points[1] if same else points[5]
    options: dict[str, object] = {
        "subset_idxs": SUBSET, "left_rotation_idx": 1, "right_rotation_idx": 5, "target_rotation_radians": target,
        "output_height": 64, "output_width": 96, "scale_x": 1.5, "scale_y": 1.25,
    }  # fmt: skip
    out = Tensor((1, 4, 4), "float32")
    path = custom("Landmarks2TransformMatrix", options, [Tensor((1, 6, 3), "float32")], out, tmp_path, 2)
    want = second_matrix(points, target, (96, 64), (1.5, 1.25))
    assert np.allclose(result(path, points[None])[0], want, atol=1e-3)


def test_the_map_of_version_1(tmp_path: Path) -> None:
    points, span, factor = landmarks(2), 192, 1.5
    (in_h, in_w), (out_h, out_w) = (192, 160), (64, 96)
    angle = -math.atan((points[5, 1] - points[1, 1]) / (points[5, 0] - points[1, 0]))
    turned = points[SUBSET, :2].astype(np.float64) @ rotation(angle, 2).T
    low, high = turned.min(axis=0), turned.max(axis=0)
    size, middle = (high - low) * factor / span, rotation(-angle, 2) @ ((low + high) / 2)
    back = rotation(-angle, 3)
    back[:2, 2] = middle / span * 2 - 1
    relative, absolute = scaled(2 / (out_w - 1), 2 / (out_h - 1), 3), scaled((in_w - 1) / 2, (in_h - 1) / 2, 3)
    relative[:2, 2], absolute[:2, 2] = -1, ((in_w - 1) / 2, (in_h - 1) / 2)
    want = absolute @ back @ scaled(size[0], size[1], 3) @ relative
    options: dict[str, object] = {
        "subset": SUBSET, "left_rotation_idx": 1, "right_rotation_idx": 5, "dimensions": 3, "landmarks_range": span,
        "bbox_size_multiplier": factor, "input_hw": [in_h, in_w], "output_hw": [out_h, out_w],
    }  # fmt: skip
    out = Tensor((1, 4, 4), "float32")
    made = result(
        custom("Landmarks2TransformMatrix", options, [Tensor((1, 1, 1, 18), "float32")], out, tmp_path), points.reshape(1, 1, 1, 18)
    )
    assert np.allclose(made[0][:2][:, [0, 1, 3]], want[:2], rtol=1e-4, atol=1e-3)
    assert np.array_equal(made[0, 2:], [[0, 0, 1, 0], [0, 0, 0, 1]]) and not made[0, :2, 2].any()


def picture_by_loops(x: Array, matrix: Array, shape: tuple[int, int], centred: bool) -> Array:
    _, h, w, channels = x.shape
    made = np.zeros((1, *shape, channels))
    for row, column in np.ndindex(*shape):
        at = []
        for a, b, _, d in matrix[0, :2].astype(np.float64):
            at.append(a * column + b * row + d + (a * 0.5 + b * 0.5 - 0.5 if centred else 0.0))
        if not (0 <= at[0] <= w - 1 and 0 <= at[1] <= h - 1):
            continue
        left, top = int(at[0]), int(at[1])
        for dy, dx in np.ndindex(2, 2):
            weight = (at[0] - left if dx else 1 - at[0] + left) * (at[1] - top if dy else 1 - at[1] + top)
            if top + dy < h and left + dx < w:
                made[0, row, column] += weight * x[0, top + dy, left + dx]
    return made


@pytest.mark.parametrize("version", [1, 2])
def test_a_picture_that_is_cropped(version: int, tmp_path: Path) -> None:
    x = np.random.default_rng(3).standard_normal((1, 7, 9, 2)).astype(np.float32)
    matrix = (shifted(2.3, 1.1, 4) @ rotation(0.4, 4) @ scaled(0.9, 1.1, 4)).astype(np.float32)[None]
    inputs = [Tensor((1, 7, 9, 2), "float32"), Tensor((1, 4, 4), "float32")]
    options: dict[str, object] = {"output_height": 6, "output_width": 8, "mode": "bilinear", "output_size": [6, 8]}
    made = result(custom("TransformTensorBilinear", options, inputs, Tensor((1, 6, 8, 2), "float32"), tmp_path, version), x, matrix)
    want = picture_by_loops(x, matrix, (6, 8), version == 2)
    assert (want == 0).any() and (want != 0).any()
    assert np.allclose(made, want, atol=1e-4)


@pytest.mark.parametrize(("size", "shape"), [(3, (1, 6, 3)), (3, (1, 1, 1, 18)), (2, (1, 1, 1, 12))])
def test_landmarks_that_are_moved(size: int, shape: tuple[int, ...], tmp_path: Path) -> None:
    points = landmarks(4)[:, :size]
    matrix = (shifted(5, -3, 4) @ rotation(0.4, 4)).astype(np.float32)
    factor = 2.0 if len(shape) == 4 else 1.0
    want = points.copy()
    want[:, :2] = points[:, :2] @ matrix[:2, :2].T + matrix[:2, 3] * factor
    inputs = [Tensor(shape, "float32"), Tensor((1, 4, 4), "float32")]
    options: dict[str, object] = {"dimensions": size, "scale": factor} if len(shape) == 4 else {}
    path = custom("TransformLandmarks", options, inputs, Tensor(shape, "float32"), tmp_path, 1 if len(shape) == 4 else 2)
    assert np.allclose(result(path, points.reshape(shape), matrix[None]), want.reshape(shape), atol=1e-4)


def test_a_landmark_that_is_not_there_is_told(tmp_path: Path) -> None:
    options: dict[str, object] = {"subset_idxs": [0, 6], "left_rotation_idx": 1, "right_rotation_idx": 5}
    out = Tensor((1, 4, 4), "float32")
    with pytest.raises(ModelError, match="not among 6"):
        load(custom("Landmarks2TransformMatrix", options, [Tensor((1, 6, 3), "float32")], out, tmp_path, 2), dims={}, shapes={})


def test_options_that_are_no_map_are_told(tmp_path: Path) -> None:
    out = Tensor((1, 4, 4), "float32")
    path = custom("Landmarks2TransformMatrix", {"a": 1}, [Tensor((1, 6, 3), "float32")], out, tmp_path)
    with pytest.raises(ModelError, match="left_rotation_idx"):
        load(path, dims={}, shapes={})
