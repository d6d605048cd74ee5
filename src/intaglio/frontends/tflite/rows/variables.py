"""Resource variables become state: an input that is fed from what the step before assigned."""

from __future__ import annotations

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.walk import TFLiteCall, Variable, constant, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType, TensorType
from intaglio.ops.binary import Where


def _handle(call: TFLiteCall, i: int) -> Variable:
    index = call.tensor(i).index
    key = f"{id(call.graph)}:{index}"
    if key not in call.walk.variables:
        raise Fault("bad-graph", "its variable has no handle")
    return call.walk.variables[key]


@importer("VAR_HANDLE")
def var_handle(call: TFLiteCall) -> None:
    o = call.options
    name = (o.SharedName() or b"").decode("utf-8", "replace") + "/" + (o.Container() or b"").decode("utf-8", "replace")
    shared = call.walk.variables.setdefault(f"name:{name}", Variable(name.strip("/") or "state"))
    call.walk.variables[f"{id(call.graph)}:{call.out().index}"] = shared


@importer("CALL_ONCE")
def call_once(call: TFLiteCall) -> None:
    index = call.options.InitSubgraphIndex()
    if not 0 < index < len(call.walk.model.subgraphs):
        raise Fault("bad-graph", f"it calls subgraph {index} of {len(call.walk.model.subgraphs)}")
    start = call.walk.model.subgraphs[index]
    if any(o.op == "CALL_ONCE" for o in start.operators):
        raise Fault("bad-graph", "a subgraph that initialises calls another")
    call.walk.run(start, {})
    for variable in call.walk.variables.values():
        if variable.now is not None and variable.entry is None:
            if variable.now.data is None:
                raise Fault("unsupported-operator", f"the first value of {quoted(variable.name)} is computed")
            variable.start, variable.now = variable.now.data, None


@importer("READ_VARIABLE")
def read_variable(call: TFLiteCall) -> None:
    variable, out = _handle(call, 0), call.out()
    if variable.now is None:
        shape = variable.start.shape if variable.start is not None else out.shape
        if out.dtype is None:
            raise Fault("unsupported-type", "a variable of this type is not supported")
        variable.entry = Value("", TensorType(out.dtype, tuple(shape)), variable.name)
        variable.now = variable.entry
        call.walk.extra_inputs.append(variable.entry)
        if variable.start is not None and np.unique(variable.start).size > 1:
            first = constant(variable.start, out.dtype)
            variable.now = call.emit(Where(), _started(call), variable.entry, first)
    call.values[out.index] = variable.now


def _started(call: TFLiteCall) -> Value:
    """A state starts with one number everywhere; another start is chosen by a state that is false in the first run only."""
    if call.walk.started is None:
        call.walk.started = Value("", TensorType(DType.BOOL, ()), "started")
        call.walk.extra_inputs.append(call.walk.started)
    return call.walk.started


@importer("ASSIGN_VARIABLE")
def assign_variable(call: TFLiteCall) -> None:
    variable, value = _handle(call, 0), call.value(1)
    if variable.start is not None and np.shape(variable.start) != value.shape:
        raise Fault(
            "shape-mismatch", f"{quoted(variable.name)} is {list(np.shape(variable.start))}, but is assigned {list(value.shape)}"
        )
    variable.now = value
