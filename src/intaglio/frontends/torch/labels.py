"""What tensors are called for people: by the module that makes them, `layer1.0.conv1`."""

from __future__ import annotations

from collections import Counter

from intaglio.frontends.torch.program import GraphRecord


def labels_of(graph: GraphRecord) -> dict[str, str]:
    """A label for every tensor and every node that the graph names. No two tensors have the same one."""
    count = Counter(record.module for record in graph.calls)
    labels: dict[str, str] = {}
    for record in graph.calls:
        alone = record.leaf and record.module and count[record.module] == 1
        label = record.module if alone else f"{record.module}.{record.name}" if record.module else record.name
        labels[record.name] = label
        for output in record.outputs:
            if isinstance(output, str):
                labels[output] = label if output == record.name or len(record.outputs) == 1 else f"{label}.{output}"
            elif output is not None:
                labels.update({name: f"{label}.{n}" for n, name in enumerate(output)})
    taken: Counter[str] = Counter(labels[o] for r in graph.calls for o in r.outputs if isinstance(o, str))
    return {name: f"{label}.{name}" if taken[label] > 1 else label for name, label in labels.items()}
