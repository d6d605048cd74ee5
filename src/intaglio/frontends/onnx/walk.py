"""The walk over a model: each tensor becomes a constant (known now) or a value of the graph (typed, computed later).

Because shapes are static, everything that follows from shapes is a constant and folds away as it is met: there is no
separate shape inference and no fixed point. A row of the table (`rows/`) says what an ONNX operator means; an operator
without a row is replaced by its function body when ONNX defines one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.errors import ModelError, printable, quoted
from intaglio.frontends.emitting import MAX_FOLDED_BYTES, MAX_NODES, Emitter
from intaglio.frontends.foreign import onnx_hint
from intaglio.frontends.onnx.call import OF_STRINGS, TABLE, Answer, Item, Items, OnnxCall, Texts, Unknown
from intaglio.frontends.onnx.container import MAX_GRAPH_DEPTH, newest_opset, opsets_of
from intaglio.frontends.onnx.faults import Fault, Problem, need_text
from intaglio.frontends.onnx.structure import ordered_live_nodes
from intaglio.frontends.onnx.tensors import DTYPES, PACKED, SMALL, STRING, TYPE_NAMES, check_shape, tensor_value
from intaglio.ir.apart import hint_of
from intaglio.ir.graph import Value
from intaglio.ir.sizes import Undecided
from intaglio.ir.strings import stacked
from intaglio.ir.types import Layout, Shape, TensorType
from intaglio.ops.base import BadOperator

MOVES_CODES = frozenset({
    "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
})  # fmt: skip
TAKES_CODES = frozenset({"Cast", "CastLike", "DequantizeLinear", "QuantizeLinear", "Shape", "Size"})
MAX_VISITS = MAX_NODES  # nodes met, again in every turn of a loop and every call of a function


@dataclass(slots=True)
class Scope:
    """Names that are visible: of this graph, and of the graphs around it."""

    parent: Scope | None
    opsets: dict[str, int]
    items: dict[str, Item] = field(default_factory=dict)
    tensors: dict[str, Any] = field(default_factory=dict)  # initializers that nobody has read yet
    reference: dict[str, Any] = field(default_factory=dict)  # attributes of the function call we are inside of

    def names(self) -> set[str]:
        inherited = self.parent.names() if self.parent is not None else set()
        return inherited | set(self.items) | set(self.tensors)


class Walk(Emitter):
    """The state of one import. Nodes come out in `nodes`, unnamed; `finish` names them."""

    def __init__(self, model: Any, path: Path, collect: bool) -> None:
        self.model = model
        self.folder = path.parent
        self.file = path.name
        super().__init__()
        self.problems: list[Problem] = []
        self.collect = collect
        self._value_info: dict[str, Any] | None = None
        self.origins: tuple[str, ...] = ()
        self.depth = 0
        self.visits = 0
        self.calls: list[tuple[str, str, str]] = []
        self.functions = {(f.domain, f.name, getattr(f, "overload", "")): f for f in model.functions}
        self.place = ""
        self.random_inputs = False  # `--random input`
        self.random_seed = self.random_streams = 0
        self.random_run: Value | None = None  # the state that counts runs, where something is random
        self.more_inputs: list[Value] = []  # that operators become
        self.packed: dict[Value, int] = {}  # constants of 2 or 4 bits, which are stored in bytes: their ONNX type

    # Names ----------------------------------------------------------------------------------------------------------

    def look_up(self, name: str, scope: Scope) -> Item:
        at: Scope | None = scope
        while at is not None:
            if name in at.items:
                return at.items[name]
            if name in at.tensors:
                if at.tensors[name].data_type == STRING:
                    at.items[name] = texts = self.strings(at.tensors[name], f"the tensor {quoted(name)}")
                    return texts
                data, dtype = tensor_value(at.tensors[name], self.folder, f"the tensor {quoted(name)}")
                value = self.constant(data, dtype, name)
                self.weight_bytes += data.nbytes
                if at.tensors[name].data_type in (*PACKED, *SMALL):
                    self.packed[value] = at.tensors[name].data_type
                at.items[name] = value
                return value
            at = at.parent
        raise Fault("bad-graph", f"the tensor {quoted(name)} is not defined", "export the model again")

    def strings(self, tensor: Any, what: str) -> Texts:
        """A constant tensor of strings."""
        shape = check_shape(tensor.dims, what)
        if len(tensor.string_data) != math.prod(shape):
            raise Fault("bad-tensor", f"{what} has {len(tensor.string_data)} values, its shape asks for {math.prod(shape)}")
        return self.words([bytes(word).decode("utf-8", "replace") for word in tensor.string_data], shape)

    def words(self, words: Sequence[str], shape: Shape) -> Texts:
        rows = [word.encode("utf-8") for word in words]
        if any(0 in row for row in rows):
            raise Fault("unsupported-type", "a string has a byte 0, which ends strings here", "use other strings")
        width = max([1, *map(len, rows)])
        value = self.constant(stacked(rows, width).reshape(*shape, width))
        value.type = replace(value.type, layout=Layout.TEXT)
        self.weight_bytes += value.type.bytes
        return Texts(value)

    # Graphs ---------------------------------------------------------------------------------------------------------

    def open_scope(self, graph: Any, parent: Scope | None, opsets: dict[str, int]) -> Scope:
        scope = Scope(parent, opsets)
        scope.tensors = {t.name: t for t in graph.initializer}
        for sparse in graph.sparse_initializer:
            scope.items[sparse.values.name] = self._sparse(sparse)
        return scope

    def _sparse(self, sparse: Any) -> Value:
        what = f"the sparse tensor {quoted(sparse.values.name)}"
        values, dtype = tensor_value(sparse.values, self.folder, what)
        indices, _ = tensor_value(sparse.indices, self.folder, what)
        shape = check_shape(sparse.dims, what)
        if math.prod(shape) > MAX_FOLDED_BYTES:
            raise Fault("too-large", f"{what} has the shape {list(shape)}, which is too large", "store it densely")
        if indices.dtype != np.int64 or indices.shape not in ((values.size,), (values.size, len(shape))):
            raise Fault("bad-tensor", f"{what} has {values.size} values and indices of shape {list(indices.shape)}")
        bounds = np.array([math.prod(shape)] if indices.ndim == 1 else shape, np.int64)
        rows = indices.reshape(values.size, -1)
        if (rows < 0).any() or (rows >= bounds).any():
            raise Fault("bad-tensor", f"{what} has an index out of range")
        dense = np.zeros(shape, values.dtype)
        dense.reshape(-1)[indices if indices.ndim == 1 else np.ravel_multi_index(tuple(rows.T), shape)] = values
        return self.constant(dense, dtype, sparse.values.name)

    def run_graph(self, graph: Any, scope: Scope) -> list[Item]:
        """Imports the live nodes of a graph whose inputs are bound in the scope; returns its outputs."""
        self.depth += 1
        if self.depth > MAX_GRAPH_DEPTH:
            raise Fault("bad-graph", f"subgraphs or functions are nested more than {MAX_GRAPH_DEPTH} deep")
        nested = self.depth > 1
        outside = scope.parent.names() if scope.parent is not None else set()
        total = len(graph.node)
        for index in ordered_live_nodes(graph, outside, nested):
            self._guarded_node(graph.node[index], scope, index, total, nested)
        self.depth -= 1
        return [self.look_up(out.name, scope) for out in graph.output]

    def _guarded_node(self, node: Any, scope: Scope, index: int, total: int, nested: bool) -> None:
        """One node; what goes wrong gets its place here."""
        before = (self.source, self.place, self.origins, self.depth, self.when, len(self.calls))
        need_text(node.name, node.op_type, node.domain, *node.input, *node.output, *[a.name for a in node.attribute])
        name = node.name or f"{node.op_type}_{index}"
        if not nested:
            self.source, self.place = name, f"{self.file}, node {index + 1} of {total}"
        self.origins = tuple(node.output)
        try:
            self.visits += 1
            if self.visits > MAX_VISITS:
                raise Fault("too-large", f"the model unrolls into more than {MAX_VISITS} nodes",
                            "loops are unrolled and functions inlined; give a smaller trip count")  # fmt: skip
            self.run_node(node, scope)
        except Undecided as error:
            self._fail("size-decides", str(error), error.hint, node, scope, name)
        except (Fault, BadOperator) as error:
            slug = error.slug if isinstance(error, Fault) else "shape-mismatch"
            self._fail(slug, error.reason, error.hint, node, scope, name)
        except ModelError as error:
            if not self.collect or nested:
                raise
            self._poison(node, scope)
            self.problems.append(Problem(name, node.op_type, error.message, error.hint, error.slug, error.where))
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError) as error:
            reason = f"its attributes or operands do not fit together ({printable(str(error), 200)})"
            self._fail("bad-attribute", reason, "export the model again, or report this model", node, scope, name)
        self.source, self.place, self.origins, self.depth, self.when = before[:5]
        del self.calls[before[5] :]

    def _fail(self, slug: str, reason: str, hint: str, node: Any, scope: Scope, name: str) -> None:
        op = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"
        hint = hint or hint_of(reason)
        if not hint:
            hint = "export the model again, with operands and attributes that fit"
            hint = hint if self.collect else f"`intaglio check {self.file}` lists everything that is unsupported"
        if self.collect and self.depth == 1:
            self.problems.append(Problem(name, op, reason, hint, slug, self.place))
            self._poison(node, scope)
            return
        raise ModelError(slug, f"`{op}` in node {quoted(name)}: {reason}", where=self.place, hint=hint) from None

    def _poison(self, node: Any, scope: Scope) -> None:
        """Go on behind a node that could not be imported: with the type that the model declares for its result, if it does."""
        for output in node.output:
            if output:
                declared = self._declared(output)
                scope.items[output] = Unknown() if declared is None else Value("", declared, output)

    def _declared(self, name: str) -> TensorType | None:
        if self._value_info is None:
            self._value_info = {v.name: v.type.tensor_type for v in [*self.model.graph.value_info, *self.model.graph.output]}
        found = self._value_info.get(name)
        dims = None if found is None or not found.HasField("shape") else [d.dim_value for d in found.shape.dim]
        if found is None or dims is None or found.elem_type not in DTYPES or min(dims, default=1) < 1:
            return None
        return TensorType(DTYPES[found.elem_type], tuple(dims))

    # Nodes ----------------------------------------------------------------------------------------------------------

    def run_node(self, node: Any, scope: Scope) -> None:
        inputs = [self.look_up(n, scope) if n else None for n in node.input]
        domain = "" if node.domain == "ai.onnx" else node.domain
        if any(isinstance(i, Unknown) for i in inputs):
            if not self._is_known(node, domain, scope):
                raise Fault("unsupported-operator", "the operator is not supported")
            self._poison(node, scope)
            return
        kind = self._small_kind(node, inputs)
        results = self.apply(node, domain, inputs, self._attributes(node, scope), scope)
        if kind is not None and node.op_type in MOVES_CODES:
            self.packed |= {result: kind for result in results if isinstance(result, Value)}
        if len(results) < len([o for o in node.output if o]) and any(node.output[len(results) :]):
            raise Fault("bad-graph", f"`{node.op_type}` gives {len(results)} results, not {len(node.output)}")
        for output, result in zip(node.output, results, strict=False):
            if not output:
                continue
            if result is None:
                raise Fault("unsupported-operator", f"the result {quoted(output)} of `{node.op_type}` is not supported")
            if isinstance(result, Value) and not result.origin:
                result.origin = output
            scope.items[output] = result

    def _small_kind(self, node: Any, inputs: list[Item | None]) -> int | None:
        """The type of operands that are codes. Operators that would take codes for numbers are refused."""
        kinds = {self.packed[i] for i in inputs if isinstance(i, Value) and i in self.packed}
        floats = kinds & SMALL.keys()
        if floats and node.op_type not in (*MOVES_CODES, *TAKES_CODES):
            what = f"`{node.op_type}` of {TYPE_NAMES[min(floats)]} is not supported"
            raise Fault("unsupported-type", what, "cast it to float first")
        return min(kinds) if len(kinds) == 1 else None

    def _is_known(self, node: Any, domain: str, scope: Scope) -> bool:
        """Is there a row or a function for this operator? What its operands are is not known here."""
        key = (domain, node.op_type, getattr(node, "overload", ""))
        if key in self.functions or (domain, node.op_type) in TABLE:
            return True
        import onnx

        try:
            schema: Any = onnx.defs.get_schema(node.op_type, scope.opsets.get(domain) or 1, domain)
        except onnx.defs.SchemaError:
            return False
        return bool(schema.has_function or schema.has_context_dependent_function)

    def _attributes(self, node: Any, scope: Scope) -> dict[str, Any]:
        """By name; in a function body, references to the caller's attributes are resolved."""
        table: dict[str, Any] = {}
        for attribute in node.attribute:
            if attribute.name in table:
                raise Fault("bad-attribute", f"the attribute {quoted(attribute.name)} is given twice")
            if attribute.ref_attr_name:
                bound = scope.reference.get(attribute.ref_attr_name)
                if bound is not None:
                    table[attribute.name] = bound
            else:
                table[attribute.name] = attribute
        return table

    def apply(
        self, node: Any, domain: str, inputs: list[Item | None], attributes: dict[str, Any], scope: Scope
    ) -> list[Item | None]:
        key = (domain, node.op_type, getattr(node, "overload", ""))
        if key in self.functions:
            return self.inline(self.functions[key], key, inputs, attributes, scope, {})
        version = scope.opsets.get(domain, 1 if domain == "com.microsoft" else None)
        row = TABLE.get((domain, node.op_type))
        if any(isinstance(item, Texts) for item in inputs):
            row = OF_STRINGS.get((domain, node.op_type), row)
        if row is not None:
            newest = version or newest_opset(domain)
            call = OnnxCall(node.op_type, domain, newest, inputs, len(node.output), attributes, self, scope)
            return _listed(row(call))
        if version is None:
            raise Fault("unsupported-operator", f"the domain `{printable(domain, 80)}` is not among the model's opsets",
                        onnx_hint(domain, node.op_type, "export without custom operators"))  # fmt: skip
        return self.by_function_body(node, domain, version, inputs, attributes, scope)

    def by_function_body(
        self, node: Any, domain: str, version: int, inputs: list[Item | None], attributes: dict[str, Any], scope: Scope
    ) -> list[Item | None]:
        import onnx

        try:
            schema = onnx.defs.get_schema(node.op_type, version, domain)
        except onnx.defs.SchemaError:
            raise Fault(
                "unsupported-operator",
                f"there is no operator `{printable(node.op_type, 80)}` in opset {version}"
                + (f" of `{printable(domain, 80)}`" if domain else ""),
                onnx_hint(domain, node.op_type, "custom operators are not supported; export the model with standard ones"),
            ) from None
        body = _function_body(schema, node, version, inputs, attributes)
        if body is None:
            usual = "replace it with supported operators when exporting (`intaglio ops` lists them)"
            raise Fault("unsupported-operator", "the operator is not supported", onnx_hint(domain, node.op_type, usual))
        defaults = {n: a.default_value for n, a in schema.attributes.items() if a.default_value.name}
        return self.inline(body, (domain, node.op_type, "schema"), inputs, attributes, scope, defaults)

    def inline(
        self, function: Any, key: tuple[str, str, str], inputs: list[Item | None], attributes: dict[str, Any],
        caller: Scope, defaults: dict[str, Any],
    ) -> list[Item | None]:  # fmt: skip
        """The body of a function in place of the call."""
        if key in self.calls:
            raise Fault("bad-graph", f"the function `{printable(function.name, 80)}` calls itself")
        self.calls.append(key)
        self.depth += 1
        if self.depth > MAX_GRAPH_DEPTH:
            raise Fault("bad-graph", f"functions are nested more than {MAX_GRAPH_DEPTH} deep")
        scope = Scope(None, opsets_of(function.opset_import, caller.opsets))
        scope.reference = defaults | {a.name: a for a in function.attribute_proto} | attributes
        if len(inputs) > len(function.input):
            raise Fault("bad-graph", f"the function takes {len(function.input)} inputs, got {len(inputs)}")
        for name, item in zip(function.input, [*inputs, *[None] * len(function.input)], strict=False):
            if item is not None:
                scope.items[name] = item
        missing = {n for n in function.input if n not in scope.items}
        for index, node in enumerate(function.node):
            if missing and any(n in missing for n in node.input):
                copy = type(node)()
                copy.CopyFrom(node)
                copy.input[:] = ["" if n in missing else n for n in node.input]
                node = copy
            self._guarded_node(node, scope, index, len(function.node), True)
        self.depth -= 1
        self.calls.remove(key)
        return [self.look_up(name, scope) if name in scope.items else None for name in function.output]


def _listed(answer: Answer) -> list[Item | None]:
    if answer is None or isinstance(answer, (Value, Items, Texts)):
        return [answer]
    if isinstance(answer, (list, tuple)):
        return list(answer)
    return [answer]  # type: ignore[list-item]


def _function_body(schema: Any, node: Any, version: int, inputs: list[Item | None], attributes: dict[str, Any]) -> Any | None:
    import onnx

    if schema.has_context_dependent_function:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        del copy.attribute[:]
        for name, attribute in attributes.items():
            new = copy.attribute.add()
            new.CopyFrom(attribute)
            new.name = name
        # An absent operand is an empty name, whatever it was called: the body looks at that.
        copy.input[:] = ["" if item is None else f"i{k}" for k, item in enumerate(inputs)]
        types = [_type_proto(item).SerializeToString() for item in inputs]
        versions = schema.context_dependent_function_opset_versions
        chosen = max((v for v in versions if v <= version), default=min(versions, default=version))
        text = schema.get_context_dependent_function_with_opset_version(chosen, copy.SerializeToString(), types)
        if text:
            return onnx.FunctionProto.FromString(text)
    if schema.has_function:
        versions = schema.function_opset_versions
        chosen = max((v for v in versions if v <= version), default=min(versions, default=version))
        return onnx.FunctionProto.FromString(schema.get_function_with_opset_version(chosen))
    return None


def _type_proto(item: Item | None) -> Any:
    import onnx

    from intaglio.frontends.onnx.tensors import DTYPES

    codes = {dtype: code for code, dtype in DTYPES.items()}
    if isinstance(item, Value):
        return onnx.helper.make_tensor_type_proto(codes[item.dtype], item.shape)
    return onnx.TypeProto()
