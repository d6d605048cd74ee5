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

    holes = np.where(np.abs(spread := real(4, 5)) > 1, np.float32(np.nan), spread)

    def missing(x: Any) -> Any:
        return jnp.sort(x), jnp.argsort(x, 0), jnp.sort(x, descending=True), jax.lax.top_k(x, 3)

    def near_zero(x: Any) -> Any:
        return jnp.expm1(x * 1e-7) * 1e7, jnp.log1p(x * 1e-7) * 1e7

    def sorting(x: Any, n: Any) -> Any:
        two = jax.lax.sort((n, x[:, 0], x[:, 1]), num_keys=2)
        return jnp.sort(x), jnp.argsort(x, axis=0, descending=True), jnp.sort(n, descending=True), two, jnp.median(x, 1)

    def putting(x: Any, n: Any) -> Any:
        x, n = jnp.asarray(x), jnp.asarray(n)
        return (
            x.at[n].set(2.0), x.at[n, 1].add(3.0), x.at[1:3, ::2].multiply(x[1:3, ::2]), x.at[:, n[0]].max(0.1), x.at[-1].min(0.0),
            jax.ops.segment_sum(x, n, num_segments=4), jnp.bincount(n, length=6),
            jax.vmap(lambda row, at: row.at[at].set(9.0))(x, n), x.at[n + 2].set(5.0, mode="drop"), (n > 2).at[0].set(True),
        )  # fmt: skip

    def taking(x: Any, n: Any) -> Any:
        windows = jax.vmap(lambda at: jax.lax.dynamic_slice(x, (at, at), (2, 2)))(n)
        along = jnp.take_along_axis(x, n[:, None] % 4, 1)
        return x[n, n], along, windows, jax.vmap(lambda row, at: row[at])(x, n % 4), jnp.searchsorted(jnp.sort(x[0]), x[:, 1])

    def bits(n: Any, u: Any, x: Any) -> Any:
        shifted = n >> 3, jax.lax.shift_right_logical(n, 3), u >> 5, n << 2, jax.lax.shift_right_arithmetic(n, 40)
        counted = jax.lax.population_count(n), jax.lax.clz(u), jax.lax.population_count(u)
        return shifted, counted, jax.lax.bitcast_convert_type(x, "int32")

    def rounded(x: Any, y: Any) -> Any:
        halves = jnp.round(x * 4) / 8
        narrow = jax.lax.reduce_precision(x, 8, 7), jax.lax.reduce_precision(x, 5, 10)
        whole = jax.lax.round(halves), jax.lax.round(x * 0 + 0.49999997)
        return whole, jnp.arctan2(x, y), jnp.arctan2(-jnp.abs(x) * 0, -1.0), narrow

    def spectra(x: Any) -> Any:
        half = jnp.fft.rfft(x)
        power = jnp.real(half * jnp.conj(half))
        back = jnp.fft.irfft(half * jnp.exp(0.3j))
        whole = jnp.fft.fft2(x)[:, 1:]
        turned = jnp.fft.ifft(whole, axis=0) / (whole + 2)
        _, _, framed = jax.scipy.signal.stft(x.reshape(-1), nperseg=8)
        twice = jnp.fft.irfft2(jnp.fft.rfft2(x))
        return jnp.abs(half), power, back, jnp.imag(turned.T), jnp.real(jnp.sum(whole, 0)), twice, jnp.abs(framed)

    half = jnp.asarray(real(4, 150), jnp.bfloat16)

    def halves(x: Any) -> Any:
        scales = jnp.tile(jnp.array([1.5, -3e-5, 2.0, 0.0, 100.0], jnp.bfloat16), 30)
        y = (x.astype(jnp.bfloat16) @ half * scales)[:, ::30] + jnp.arange(5, dtype=jnp.bfloat16)
        return y.astype(jnp.float32), jnp.maximum(y, -jnp.inf).astype(jnp.float32), (x.astype(jnp.float16) + 1).astype(jnp.float32)

    def drawn(key: Any) -> Any:
        return jax.random.normal(key, (5,)), jax.random.randint(key, (4,), 0, 9), jax.random.permutation(key, 6)

    ids = rng.integers(0, 9, (1, 5)).astype(np.int32)
    few = np.array([3, 0, 2, 3], np.int32)
    many = np.array([-7, 0, 1, 2**31 - 1, -(2**31), 12345], np.int32)
    return {
        "network": (network, (real(1, 8, 8, 2),)), "transposed": (transposed, (real(1, 4, 5, 2),)),
        "attention": (attention, (real(6, 4),)), "places": (places, (real(3, 4),)),
        "arithmetic": (arithmetic, (real(3, 4), np.arange(6, dtype=np.int32))), "embedding": (embedding, (ids,)),
        "few turns": (recurrent, (real(5, 4),)), "many turns": (recurrent, (real(40, 4),)), "until": (until, (real(3),)),
        "branches": (branches, (real(3), np.ones((), np.int32))), "nested": (nested, (real(3),)),
        "missing": (missing, (holes,)), "near zero": (near_zero, (real(9),)),
        "sorting": (sorting, (real(4, 5), few)), "putting": (putting, (real(4, 5), few)), "taking": (taking, (real(4, 5), few)),
        "bits": (bits, (many, many.view(np.uint32), real(3))), "rounded": (rounded, (real(3, 4), real(3, 4))),
        "spectra": (spectra, (real(4, 12),)), "halves": (halves, (np.round(real(3, 4) * 4) / 4,)),
        "drawn": (drawn, (np.array([7, 1], np.uint32),)),
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
        assert got.shape == want.shape and np.allclose(got, want, atol=1e-5, equal_nan=True), (name, n, got, want)
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
    assert "complex" in refused(folder, jax.jit(jnp.fft.fft), example_inputs=given).message
    odd = jax.jit(lambda x: jnp.fft.ifft(jnp.tanh(jnp.fft.fft(x))).real)
    assert "of complex numbers" in refused(folder, odd, example_inputs=given).message
    assert "example_inputs" in refused(folder, jax.jit(jnp.sin)).hint
    (folder / "bad.jax").write_bytes(b"nothing")
    assert "JAX does not read" in refused(folder, folder / "bad.jax").message
    product = jax.export.export(jax.jit(lambda x: x @ x))(jax.ShapeDtypeStruct((3, 3), np.float32)).serialize()
    (folder / "bad.jax").write_bytes(bytes(product).replace(b"dot_general", b"dot_geQeral"))  # seen when it is lowered
    assert "JAX does not read" in refused(folder, folder / "bad.jax").message
    reads_for_ever(folder / "bad.jax")
    symbolic = jax.ShapeDtypeStruct(jax.export.symbolic_shape("4, t"), np.float32)
    exported = jax.export.export(jax.jit(jnp.sin))(symbolic)
    for dims in ({}, {"t": (1, 8)}):
        assert "`dims={'t': 8}`" in refused(folder, exported, dims=dims).hint
    assert refused(folder, exported, dims={"m": 8, "t": 2}).slug == "unknown-dimension"
    bounded = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 4", constraints=["b >= 4"]), np.float32)
    said = refused(folder, jax.export.export(jax.jit(jnp.sin))(bounded), dims={"b": 2})
    assert "JAX does not take these sizes" in said.message and "hint" not in said.message
    print("refusals ok")


def symbolic(folder: Path) -> None:
    """Sizes with names, and sizes that follow from them."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import intaglio

    def mixed(x: Any, y: Any) -> Any:
        scores = jax.nn.softmax(x @ x.T)
        return jnp.mean(scores @ x, 0), jnp.concatenate([y, y[::-1]]).reshape(2, -1), x.shape[0] * x

    b, wide = jax.export.symbolic_shape("b, 2*b + 1")
    exported = jax.export.export(jax.jit(mixed))(
        jax.ShapeDtypeStruct((b, 4), np.float32), jax.ShapeDtypeStruct((wide,), np.float32)
    )
    package = intaglio.compile(exported, output=folder / "symbolic", dims={"b": 3})
    rng = np.random.default_rng(2)
    given = rng.standard_normal((3, 4)).astype(np.float32), rng.standard_normal(7).astype(np.float32)
    made = package.run({"in0": given[0], "in1": given[1]})
    for n, want in enumerate(mixed(*given)):
        assert np.allclose(made[f"out{n}"], want, atol=1e-5), n
    assert package.validate().ok
    print("symbolic ok")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        only = sys.argv[1:]
        for name, (function, given) in functions().items():
            if not only or name in only:
                compare(name, function, given, Path(place))
        if not only or "symbolic" in only:
            symbolic(Path(place))
        if not only or "refusals" in only:
            refusals(Path(place))
