"""The words or numbers that a layer looks up: in its options, or in a file of the archive where they were learnt."""

from __future__ import annotations

from intaglio.frontends.keras.config import Layer
from intaglio.frontends.keras.weights import Weights
from intaglio.frontends.onnx.faults import Fault

Key = int | str


def vocabulary(layer: Layer, weights: Weights) -> list[Key] | None:
    """As it is written, with what stands for a mask and for others, if that is there; None: there is none."""
    numbers = layer.kind == "IntegerLookup"
    told = layer.config.get("vocabulary")
    if isinstance(told, dict):  # Keras 2 and 3 write arrays in several ways
        told = (told.get("config") or {}).get("value") if isinstance(told.get("config"), dict) else None
    if isinstance(told, list):
        kind: type = int if numbers else str
        if not all(type(key) is kind for key in told):
            raise Fault("bad-attribute", f"`vocabulary` holds more than {'whole numbers' if numbers else 'strings'}")
        return list(told)
    words = weights.words(layer)
    if words is None:
        return None
    while words and words[-1] == "":
        words.pop()
    try:
        return [int(word) for word in words] if numbers else list(words)
    except ValueError:
        raise Fault("bad-file", "its list of numbers holds something else", "save the model again") from None


def tokens(layer: Layer, weights: Weights) -> tuple[list[Key], int]:
    """What is looked up, and the number that the first of them has: those before stand for a mask and for all others."""
    found = vocabulary(layer, weights)
    mask, others = layer.config.get("mask_token"), layer.config.get("num_oov_indices", 1)
    if type(others) is not int or not 0 <= others < 1 << 24:
        raise Fault("bad-attribute", f"`num_oov_indices` is {others}")
    masks = int(mask is not None and layer.config.get("output_mode", "int") == "int")
    special = [mask] * masks + [layer.config.get("oov_token")] * others
    if not found:
        raise Fault("unsupported-operator", "it has no vocabulary", "call `adapt` before the model is saved, as a `.keras` file")
    if len(found) > len(special) and found[: len(special)] == special:
        found = found[len(special) :]
    return found, len(special)
