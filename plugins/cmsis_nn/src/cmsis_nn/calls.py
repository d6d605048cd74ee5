"""Regions as calls of CMSIS-NN: its structs filled, its scratch memory checked against what the library itself wants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cmsis_nn import scratch
from cmsis_nn.checks import convolution_function, geometry, one_factor
from cmsis_nn.library import CALLS
from intaglio.accelerator import Array, Code, Node, Region
from intaglio.ops.pool import MaxPool
from intaglio.ops.quantised import QAdd, QConv, QMatMul
from intaglio.ops.quantised_rows import QAveragePool, QSoftmax


def code_of(region: Region, kind: str) -> Code:
    """C for a core that is `mve`, `dsp` or `plain`."""
    node = region.node
    match node.op:
        case QConv():
            return _convolution(node, node.op, kind)
        case QMatMul():
            return _dense(node, node.op, kind)
        case QAdd():
            return _addition(region, node.op)
        case MaxPool():
            return _max_pool(node, node.op)
        case QAveragePool():
            return _average_pool(node, node.op, kind)
        case QSoftmax():
            return _softmax(node, node.op)
        case other:
            raise TypeError(f"no function for {other.NAME}")


def _convolution(node: Node, op: QConv, kind: str) -> Code:
    x, w = node.inputs[0], node.inputs[1]
    assert x is not None and w is not None and w.data is not None
    g, outputs, batch = geometry(node), w.shape[0], x.shape[0]
    depthwise = op.group > 1
    stem = convolution_function(node)
    asked, upscale = ("&input, &filter", "NULL, ") if stem == "arm_convolve_s8" else ("&params, &input, &filter, &output", "")
    size = scratch.depthwise_bytes(g, outputs, batch, kind) if depthwise else scratch.conv_bytes(g, kind)
    params = [
        f".input_offset = {-op.x_zero},",
        f".output_offset = {op.y_zero},",
        *([f".ch_mult = {outputs // g.channels},"] if depthwise else []),
        f".stride = {{.w = {op.strides[1]}, .h = {op.strides[0]}}},",
        f".padding = {{.w = {op.pads[1]}, .h = {op.pads[0]}}},",
        f".dilation = {{.w = {op.dilations[1]}, .h = {op.dilations[0]}}},",
        f".activation = {{.min = {op.low}, .max = {op.high}}},",
    ]
    kind_of_params = "cmsis_nn_dw_conv_params" if depthwise else "cmsis_nn_conv_params"
    filters = [1, *g.kernel, outputs] if depthwise else [outputs, *g.kernel, g.channels]
    weights = w.data.transpose(1, 2, 3, 0) if depthwise else w.data.transpose(0, 2, 3, 1)
    body = [
        *_struct(f"const {kind_of_params} params", params),
        "const cmsis_nn_per_channel_quant_params factors = {(int32_t *)multipliers, (int32_t *)shifts};",
        *_dims(input=x.shape, filter=filters, biases=[1, 1, 1, outputs], output=node.output.shape),
        *_context(size, f"{stem}_get_buffer_size({asked})"),
        f"if ({stem}(&context, &params, &factors, &input, in0, &filter, weights, &biases, bias, {upscale}&output, out0)",
        "    != ARM_CMSIS_NN_SUCCESS)",
        "    return 1;",
    ]
    return _code(body, {"weights": weights, **_numbers(node, outputs, "bias", "multipliers", "shifts")}, size, stem)


def _dense(node: Node, op: QMatMul, kind: str) -> Code:
    x, w = node.inputs[0], node.inputs[1]
    assert x is not None and w is not None and w.data is not None
    weights = w.data if op.transpose_b else w.data.T
    outputs, depth = weights.shape
    size, factor = scratch.dense_bytes(outputs, kind), one_factor(node)
    params = [
        f".input_offset = {-op.a_zero},",
        ".filter_offset = 0,",
        f".output_offset = {op.y_zero},",
        f".activation = {{.min = {op.low}, .max = {op.high}}},",
    ]
    if factor is not None:
        name = "arm_fully_connected_s8"
        scale = f"const cmsis_nn_per_tensor_quant_params factors = {{{factor[0]}, {factor[1]}}};"
        numbers = _numbers(node, outputs, "bias")
    else:
        name = "arm_fully_connected_per_channel_s8"
        scale = "const cmsis_nn_per_channel_quant_params factors = {(int32_t *)multipliers, (int32_t *)shifts};"
        numbers = _numbers(node, outputs, "bias", "multipliers", "shifts")
    sums = [
        f"if (arm_vector_sum_s8((int32_t *)(void *)scratch, {depth}, {outputs}, weights, {-op.a_zero}, 0, bias)",
        "    != ARM_CMSIS_NN_SUCCESS)",
        "    return 1;",
    ]
    body = [
        *_struct("const cmsis_nn_fc_params params", params),
        scale,
        *_dims(
            input=[x.type.elements // depth, 1, 1, depth], filter=[depth, 1, 1, outputs], biases=[1, 1, 1, outputs],
            output=[x.type.elements // depth, 1, 1, outputs],
        ),
        *_context(size, "arm_fully_connected_s8_get_buffer_size(&filter)"),
        *(sums if size else []),
        f"if ({name}(&context, &params, &factors, &input, in0, &filter, weights, &biases, bias, &output, out0)",
        "    != ARM_CMSIS_NN_SUCCESS)",
        "    return 1;",
    ]  # fmt: skip
    return _code(body, {"weights": weights, **numbers}, size, name)


def _addition(region: Region, op: QAdd) -> Code:
    constants: dict[str, Array] = {}
    names = []
    for value in region.node.inputs:
        assert value is not None
        if value.data is not None:
            constants["other"] = value.data
        names.append("other" if value.data is not None else f"in{region.inputs.index(value)}")
    body = [
        f"if (arm_elementwise_add_s8({names[0]}, {names[1]}, {-op.a_zero}, {op.a_multiplier}, {op.a_shift},",
        f"                           {-op.b_zero}, {op.b_multiplier}, {op.b_shift}, {op.lift}, out0,",
        f"                           {op.y_zero}, {op.multiplier}, {op.shift}, {op.low}, {op.high}, {region.elements})",
        "    != ARM_CMSIS_NN_SUCCESS)",
        "    return 1;",
    ]
    return _code(body, constants, 0, "arm_elementwise_add_s8")


def _max_pool(node: Node, op: MaxPool) -> Code:
    return _code([*_pooling(node, op, (-128, 127)), *_context(0), *_pooled("arm_max_pool_s8")], {}, 0, "arm_max_pool_s8")


def _average_pool(node: Node, op: QAveragePool, kind: str) -> Code:
    channels = node.output.shape[3]
    size = scratch.average_bytes(channels, kind)
    wanted = f"arm_avgpool_s8_get_buffer_size({node.output.shape[2]}, {channels})"
    body = [*_pooling(node, op, (op.low, op.high)), *_context(size, wanted), *_pooled("arm_avgpool_s8")]
    return _code(body, {}, size, "arm_avgpool_s8")


def _pooling(node: Node, op: MaxPool | QAveragePool, limits: tuple[int, int]) -> list[str]:
    x = node.inputs[0]
    assert x is not None
    params = [
        f".stride = {{.w = {op.strides[1]}, .h = {op.strides[0]}}},",
        f".padding = {{.w = {op.pads[1]}, .h = {op.pads[0]}}},",
        f".activation = {{.min = {limits[0]}, .max = {limits[1]}}},",
    ]
    dims = _dims(input=x.shape, window=[1, *op.kernel, 1], output=node.output.shape)
    return [*_struct("const cmsis_nn_pool_params params", params), *dims]


def _pooled(name: str) -> list[str]:
    return [f"if ({name}(&context, &params, &input, in0, &window, &output, out0) != ARM_CMSIS_NN_SUCCESS)", "    return 1;"]


def _softmax(node: Node, op: QSoftmax) -> Code:
    row = node.output.shape[-1]
    multiplier, shift, lowest = op.factors()
    call = f"arm_softmax_s8(in0, {node.output.type.elements // row}, {row}, {multiplier}, {shift}, {lowest}, out0);"
    return _code([call], {}, 0, "arm_softmax_s8", fallible=False)


def _struct(what: str, fields: Sequence[str]) -> list[str]:
    return [f"{what} = {{", *(f"    {field}" for field in fields), "};"]


def _dims(**dims: Sequence[int]) -> list[str]:
    """n, h, w, c."""
    return [f"const cmsis_nn_dims {name} = {{{', '.join(str(n) for n in sizes)}}};" for name, sizes in dims.items()]


def _context(size: int, wanted: str = "") -> list[str]:
    made = f"const cmsis_nn_context context = {{{'scratch' if size else 'NULL'}, {size}}};"
    check = [f"if ({wanted} > {size})", "    return 1; /* this CMSIS-NN needs more than was planned */"] if wanted else []
    return [made, *check]


def _numbers(node: Node, outputs: int, *names: str) -> dict[str, Array]:
    """Bias (zeros where there is none), multipliers and shifts, one for each output."""
    made = {}
    for name, value in zip(("bias", "multipliers", "shifts"), node.inputs[2:5], strict=True):
        if name in names:
            data = np.zeros(outputs) if value is None or value.data is None else value.data.reshape(-1)
            made[name] = np.ascontiguousarray(np.broadcast_to(data, outputs), np.int32)
    return made


def _code(body: Sequence[str], constants: dict[str, Array], size: int, name: str, fallible: bool = True) -> Code:
    packed = {key: np.ascontiguousarray(data) for key, data in constants.items()}
    about = f"cmsis_nn: {name}" + (f" with {size:,} bytes of scratch memory" if size else "")
    return Code("\n".join(body), packed, size, includes=(CALLS,), fallible=fallible, about=about)
