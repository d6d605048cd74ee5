"""Run by an interpreter that has TensorFlow: writes two SavedModels and a frozen graph, an input, and what TensorFlow computes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def main(folder: Path) -> None:
    import numpy as np
    import tensorflow as tf
    from tensorflow.python.framework import convert_to_constants as freezing

    rng = np.random.default_rng(5)
    kernel, weights = (rng.standard_normal(s).astype(np.float32) * 0.4 for s in ((3, 3, 3, 4), (4, 5)))

    class Network(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            self.kernel, self.weights = tf.Variable(kernel), tf.Variable(weights)

        @tf.function(input_signature=[tf.TensorSpec((1, 8, 8, 3), tf.float32, name="image")])  # type: ignore[untyped-decorator]
        def __call__(self, image: Any) -> Any:
            y = tf.nn.relu(tf.nn.conv2d(image, self.kernel, 2, "SAME"))
            return tf.nn.softmax(tf.reduce_mean(y, axis=(1, 2)) @ self.weights)

    class Two(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            self.weights = tf.Variable(weights)

        @tf.function(input_signature=[tf.TensorSpec((1, 4), tf.float32)])  # type: ignore[untyped-decorator]
        def encode(self, x: Any) -> Any:
            return {"code": tf.tanh(x @ self.weights), "sum": tf.reduce_sum(x)}

        @tf.function(input_signature=[tf.TensorSpec((None, 5), tf.float32)])  # type: ignore[untyped-decorator]
        def decode(self, code: Any) -> Any:
            return {"y": code @ tf.transpose(self.weights)}

    two = Two()
    tf.saved_model.save(two, str(folder / "two"), signatures={"encode": two.encode, "decode": two.decode})
    network, x = Network(), rng.standard_normal((1, 8, 8, 3)).astype(np.float32)
    tf.saved_model.save(network, str(folder / "saved"))
    frozen = freezing.convert_variables_to_constants_v2(network.__call__.get_concrete_function())
    (folder / "frozen.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString())
    np.savez(folder / "x.npz", in0=x)
    np.savez(folder / "y.npz", y=network(x).numpy())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
