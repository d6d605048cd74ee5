"""What a layer is called in a tuning database: operator, operands by type and shape, and the attributes that loops depend on.

    conv(f32[1,56,56,64], const f32[64,64,3,3], const f32[64], pads=(1,1,1,1), epilogue=[relu(0)])

Layers of the same name are measured once, whatever their weights and quantisation.
"""

from __future__ import annotations

import re

from intaglio.ir.graph import Node, Value
from intaglio.ir.text import print_fields
from intaglio.ir.types import TensorType

NUMBERS = re.compile(r"(\w+_zero|low|high)=")  # of quantised operators: the same loops, whatever they are


def layer_text(node: Node) -> str:
    fields = [field for field in print_fields(node.op) if not NUMBERS.match(field)]
    return f"{node.op.NAME}({', '.join([*map(_operand, node.inputs), *fields])})"


def _operand(value: Value | None) -> str:
    if value is None:
        return "_"
    return ("const " if value.is_const else "") + str(TensorType(value.type.dtype, value.type.shape))
