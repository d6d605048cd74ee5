"""Run by an interpreter that has JAX and Intaglio: compiles functions and compares them with JAX. Prints a line per function."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def functions() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(4)

    def real(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    kernel, depth, weights, table = (jnp.asarray(real(*s)) for s in ((3, 3, 2, 4), (3, 3, 1, 4), (4, 5), (9, 4)))

    def network(x: Any) -> Any:
        y = jax.nn.relu(jax.lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
        y = jax.lax.conv_general_dilated(
            y,
            depth,
            (1, 1),
            [(1, 1), (0, 2)],
            rhs_dilation=(1, 2),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=4,
        )
        y = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")
        return jax.nn.softmax(y.mean(axis=(1, 2)) @ weights)

    def transposed(x: Any) -> Any:
        return jax.lax.conv_transpose(x, kernel.transpose(0, 1, 3, 2)[:, :, :2], (2, 2), "SAME")

    def attention(x: Any) -> Any:
        heads = x.reshape(6, 2, 2)
        scores = jnp.einsum("ihd,jhd->hij", heads, heads) / 2**0.5
        masked = jnp.where(jnp.tril(jnp.ones((6, 6), bool)), scores, -1e9)
        return jnp.einsum("hij,jhd->ihd", jax.nn.softmax(masked), heads).reshape(6, 4)

    def places(x: Any) -> Any:
        return jnp.argmax(x, -1), jnp.argmin(x, 0), jax.lax.top_k(x, 2), jnp.take(x, jnp.array([2, 0]), axis=0), x[1:, ::2], x[::-1]

    def arithmetic(x: Any, n: Any) -> Any:
        y = jax.nn.gelu(x) + jnp.log1p(jnp.abs(x)) * jax.lax.rsqrt(x * x + 1) - jnp.clip(x, -1, 1) ** 3
        return {"a": y, "b": (n * 3 // 2) % 5, "c": jnp.cumsum(x, 0), "d": jnp.concatenate([x, y]).sum(), "e": n > 2}

    def embedding(n: Any) -> Any:
        found = table[n]
        mean = found.mean(-1, keepdims=True)
        return (found - mean) / jnp.sqrt(((found - mean) ** 2).mean(-1, keepdims=True) + 1e-5)

    def window(x: Any, n: Any) -> Any:
        return jax.lax.dynamic_slice(x, (n, 0), (2, 4)), jnp.pad(x, ((1, 2), (0, 1)), constant_values=3.0), jnp.any(x > 1, axis=0)

    def recurrent(x: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            h = jnp.tanh(h * 0.5 + row)
            return h, h * 2

        return jax.lax.scan(step, jnp.zeros(4), x)

    def until(x: Any) -> Any:
        return jax.lax.while_loop(lambda s: s[0].sum() < 50, lambda s: (s[0] * 1.5 + 1, s[1] + 1), (jnp.abs(x), 0))

    def branches(x: Any, n: Any) -> Any:
        taken = jax.lax.switch(n, [lambda y: y + 1, lambda y: y * 2, jnp.negative], x)
        return taken, jax.lax.cond(n > 0, jnp.sin, jnp.cos, x), jnp.isfinite(x / x[0])

    def nested(x: Any) -> Any:
        def outer(s: Any) -> Any:
            return jax.lax.fori_loop(0, 30, lambda n, y: y * 0.9 + n * 0.01, s[0]) + 1, s[1] + 1

        return jax.lax.while_loop(lambda s: s[1] < s[0].max().astype(jnp.int32), outer, (x * 0 + 2.5, 0))

    ids = rng.integers(0, 9, (1, 5)).astype(np.int32)
    return {
        "network": (network, (real(1, 8, 8, 2),)), "transposed": (transposed, (real(1, 4, 5, 2),)),
        "attention": (attention, (real(6, 4),)), "places": (places, (real(3, 4),)),
        "arithmetic": (arithmetic, (real(3, 4), np.arange(6, dtype=np.int32))), "embedding": (embedding, (ids,)),
        "few turns": (recurrent, (real(5, 4),)), "many turns": (recurrent, (real(40, 4),)), "until": (until, (real(3),)),
        "branches": (branches, (real(3), np.ones((), np.int32))), "nested": (nested, (real(3),)),
        "window": (window, (real(5, 4), np.int32(2) * np.ones((), np.int32))),
    }  # fmt: skip


def compare(name: str, function: Callable[..., Any], given: tuple[Any, ...], folder: Path) -> None:
    import jax
    import numpy as np

    import intaglio

    package = intaglio.compile(jax.jit(function), example_inputs=given, output=folder / name)
    made = package.run({f"in{n}": array for n, array in enumerate(given)})
    wanted = jax.tree_util.tree_leaves(function(*given))
    assert len(made) == len(wanted)
    for n, want in enumerate(wanted):
        got = made[f"out{n}"]
        assert got.shape == want.shape and np.allclose(got, want, atol=1e-5), (name, n, got, want)
    checked = package.validate()
    assert checked.ok and "jax" in str(checked), checked
    print(f"{name} ok")


def refused(folder: Path, model: Any, **options: Any) -> Any:
    import intaglio

    try:
        intaglio.compile(model, output=folder / "refused", **options)
    except intaglio.UserError as error:
        assert not (folder / "refused").exists()
        return error
    raise AssertionError(f"{model} is not refused")


def reads_for_ever(path: Path) -> None:
    """The child has a limit of processor time."""
    from intaglio.errors import ModelError
    from intaglio.frontends.jax import trial

    said, endless = "", "while True: pass\n"
    kept, trial.SECONDS, trial._CHILD = (trial.SECONDS, trial._CHILD), 1.0, endless
    try:
        trial.tried(path)
    except ModelError as error:
        said = error.message
    finally:
        trial.SECONDS, trial._CHILD = kept
    assert "not read after 2 s" in said


def refusals(folder: Path) -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np

    given = (np.ones((3, 3), np.float32),)
    assert "custom_call" in refused(folder, jax.jit(jnp.linalg.cholesky), example_inputs=given).message
    assert "sort" in refused(folder, jax.jit(jnp.sort), example_inputs=given).message
    assert "example_inputs" in refused(folder, jax.jit(jnp.sin)).hint
    (folder / "bad.jax").write_bytes(b"nothing")
    assert "JAX does not read" in refused(folder, folder / "bad.jax").message
    product = jax.export.export(jax.jit(lambda x: x @ x))(jax.ShapeDtypeStruct((3, 3), np.float32)).serialize()
    (folder / "bad.jax").write_bytes(bytes(product).replace(b"dot_general", b"dot_geQeral"))  # seen when it is lowered
    assert "JAX does not read" in refused(folder, folder / "bad.jax").message
    reads_for_ever(folder / "bad.jax")
    symbolic = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), np.float32)
    assert "symbolic" in refused(folder, jax.export.export(jax.jit(jnp.sin))(symbolic)).message
    print("refusals ok")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        only = sys.argv[1:]
        for name, (function, given) in functions().items():
            if not only or name in only:
                compare(name, function, given, Path(place))
        if not only:
            refusals(Path(place))
