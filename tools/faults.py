"""What goes wrong around a compile: hostile names, kills, and writes that fail. Each sweep prints what it tried and what it found.

    tools/faults.py names --count 10000      every generated file has the tokens of its twin with plain names
    tools/faults.py kills --count 1000       SIGKILL at any time: what is there is whole, and the next run leaves no staging folder
    tools/faults.py writes --count 500       ENOSPC and EIO at every call that writes: nothing half-written is taken for good

Exit code 1 if something was found.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from intaglio.errors import IntaglioError
from intaglio.package.signing import verify_package
from intaglio.pipeline import compile_request
from intaglio.stages import Request, Watch

PARTS = (
    "*/", "/*", "//", "\n", "\r", "\\", "??/", "'", '"', "`", "%s", "%n", "$(", "${", "$$", "{{", "}}", "{%", "#", ";", "&&", "|",
    "<", ">", "</script>", "&lt;", "\t", "\0", "\u202e", "\u2028", "é", "../", "/etc/", "int", "main", "NULL", "EOF", "if", "@",
    "[", "]", "=", ":", ",", "a", "B", "9", "_", " ", "~", "-rf", "all:", "endif()", "\x7f", "\ud7ff", "🙂",
)  # fmt: skip
KEYS = ("x", "z", "w", "b", "c", "d", "e", "y", "q", "n0", "n1", "n2", "n3", "n4")


def network(names: dict[str, str]) -> onnx.ModelProto:
    n = names
    steps = [
        helper.make_node("Conv", [n["x"], n["w"], n["b"]], [n["c"]], name=n["n0"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", [n["c"]], [n["d"]], name=n["n1"]),
        helper.make_node("Sin", [n["d"]], [n["e"]], name=n["n2"]),
        helper.make_node("Add", [n["e"], n["z"]], [n["y"]], name=n["n3"]),
        helper.make_node("Softmax", [n["y"]], [n["q"]], name=n["n4"]),
    ]
    weights = np.random.default_rng(0).standard_normal((3, 2, 3, 3)).astype(np.float32)
    constants = [numpy_helper.from_array(weights, n["w"]), numpy_helper.from_array(np.zeros(3, np.float32), n["b"])]
    inputs = [helper.make_tensor_value_info(n["x"], TensorProto.FLOAT, [1, 2, 5, 5])]
    inputs.append(helper.make_tensor_value_info(n["z"], TensorProto.FLOAT, [1, 3, 5, 5]))
    outputs = [helper.make_tensor_value_info(n[key], TensorProto.FLOAT, [1, 3, 5, 5]) for key in "yq"]
    graph = helper.make_graph(steps, "net", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(f"<{tag} {' '.join(name for name, _ in attrs)}>")

    def handle_endtag(self, tag: str) -> None:
        self.found.append(f"</{tag}>")


def shape(value: object) -> object:
    """Of JSON or TOML, without its texts and numbers."""
    if isinstance(value, dict):
        return {str(key): shape(one) for key, one in value.items()}
    return [shape(one) for one in value] if isinstance(value, list) else type(value).__name__


def tokens(path: Path) -> object:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        table = json.loads(text)
        return sorted(table) if isinstance(table, dict) else shape(table)
    if path.suffix == ".toml":
        return shape(tomllib.loads(text))
    if path.suffix == ".html":
        tags = _Tags()
        tags.feed(text)
        return tags.found
    bare = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL) if path.suffix in (".c", ".h", ".hpp", ".rs") else text
    bare = re.sub(r"//[^\n]*", " ", bare) if path.suffix == ".rs" else bare
    bare = re.sub(r"\b[0-9a-f]{64}\b", "digest", bare)
    words = re.findall(r"[A-Za-z_]\w*|[0-9][\w.]*|\S", bare)
    return ["word" if re.fullmatch(r"[A-Za-z_]\w*", word) else word for word in words]


def generated(names: dict[str, str], folder: Path) -> dict[str, object]:
    from intaglio.report.gather import Wanted, gather
    from intaglio.report.page import page

    folder.mkdir()
    (folder / "m.onnx").write_bytes(network(names).SerializeToString())
    out = folder / "out"
    compile_request(Request(folder / "m.onnx", out, name="m", stop_after="package", target="generic"), Watch())
    (out / "report.html").write_text(page(gather(out, Wanted(run=False), lambda text: None), {}), encoding="utf-8")
    kinds = (".c", ".h", ".hpp", ".rs", ".toml", ".json", ".html", ".txt", "")
    skipped = ("test/", "ir/")
    files = [p for p in sorted(out.rglob("*")) if p.is_file() and p.suffix in kinds]
    return {str(p.relative_to(out)): tokens(p) for p in files if not str(p.relative_to(out)).startswith(skipped)}


def sweep_names(count: int, seed: int) -> Iterator[str]:
    source = random.Random(seed)
    plain = {key: f"v_{key}" for key in KEYS}
    with tempfile.TemporaryDirectory() as place:
        wanted = generated(plain, Path(place) / "plain")
    for number in range(-(-count // len(KEYS))):
        names = {key: "".join(source.choices(PARTS, k=source.randrange(1, 9))) + key for key in KEYS}
        with tempfile.TemporaryDirectory() as place:
            try:
                got = generated(names, Path(place) / "odd")
            except IntaglioError as error:
                yield f"{number}: refused: {error.message} {names}"
                continue
        for file in wanted.keys() | got.keys():
            if wanted.get(file) != got.get(file):
                yield f"{number}: {file} differs: {names}"


def sweep_kills(count: int, seed: int) -> Iterator[str]:
    source = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "m.onnx").write_bytes(network({key: key for key in KEYS}).SerializeToString())
        words = [sys.executable, "-m", "intaglio", "compile", str(folder / "m.onnx"), "-o", str(folder / "out")]
        words += ["--stop-after", "package", "--target", "generic", "--force"]
        begun = time.monotonic()
        subprocess.run(words, check=True, capture_output=True)
        whole = time.monotonic() - begun
        for number in range(count):
            made = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(source.uniform(0.3, 1.05) * whole)
            made.send_signal(signal.SIGKILL)
            made.wait()
            if (folder / "out").exists() and not verify_package(folder / "out", None).ok:
                yield f"{number}: a package that is not whole"
            if number % 20 == 19:
                subprocess.run(words, check=True, capture_output=True)
                left = [p.name for p in folder.iterdir() if p.name not in ("m.onnx", "out")]
                if left:
                    yield f"{number}: left after the next run: {left}"


class _Failing:
    """Raises at the n-th call that writes below a folder. Python tells its audit hooks of every one, before it is done."""

    def __init__(self) -> None:
        self.folder, self.left, self.code, self.calls = "", -1, 0, 0
        sys.addaudithook(self.hear)

    def hear(self, event: str, words: tuple[Any, ...]) -> None:
        if not self.folder or event not in ("open", "os.mkdir", "os.rename", "os.truncate", "shutil.copyfile", "os.chmod"):
            return
        if event == "open" and not (isinstance(words[2], int) and words[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        paths = [os.fspath(word) for word in words[:2] if isinstance(word, (str, os.PathLike))]
        if not any(str(path).startswith(self.folder) for path in paths):
            return
        self.calls += 1
        if self.left == 0:
            self.left = -1
            raise OSError(self.code, os.strerror(self.code), str(paths[0]))
        self.left -= 1


def sweep_writes(count: int, seed: int) -> Iterator[str]:
    failing, tried = _Failing(), 0
    options: list[dict[str, object]] = [{}, {"force": True}, {"archive": True}, {"dump_ir": True}, {"target": "cortex-m4f"}]
    while tried < count:
        for option in options:
            for code in (errno.ENOSPC, errno.EIO):
                at = 0
                while tried < count:
                    found = _fail(failing, option, code, at)
                    if found is None:
                        break
                    tried += 1
                    at += 1
                    if found:
                        yield f"{option}, {os.strerror(code)}, call {at}: {found}"
        seed += 1


def _fail(failing: _Failing, option: dict[str, object], code: int, at: int) -> str | None:
    """None: there is no such call. Otherwise what is wrong, or nothing."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "m.onnx").write_bytes(network({key: key for key in KEYS}).SerializeToString())
        output = folder / "out"
        target = str(option.get("target", "generic"))
        given: dict[str, Any] = {"stop_after": "package", "target": target}
        if option.get("dump_ir"):
            given["dump_ir"] = folder / "dumped"
        old = None
        if option.get("force"):
            compile_request(Request(folder / "m.onnx", output, name="m", **given), Watch())
            old, given["force"] = (output / "manifest.json").read_bytes(), True
        given["archive"] = bool(option.get("archive"))
        failing.folder, failing.left, failing.code = place, at, code
        try:
            compile_request(Request(folder / "m.onnx", output, name="m", **given), Watch())
        except IntaglioError:
            done = False
        except OSError as error:
            return f"a traceback: {error}"
        else:
            done = True
        finally:
            reached, failing.folder = failing.left < 0, ""
        if not reached:
            return None
        left = [p.name for p in folder.iterdir() if p.name not in ("m.onnx", "out", "dumped", "out.tar.gz")]
        if left:
            return f"left behind: {left}"
        if output.exists() and not verify_package(output, None).ok:
            return "a package that is not whole"
        if not done and old is not None and (output / "manifest.json").read_bytes() != old:
            return "the package from before is gone"
        return ""


SWEEPS = {"names": sweep_names, "kills": sweep_kills, "writes": sweep_writes}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", choices=sorted(SWEEPS))
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    words = parser.parse_args()
    found = 0
    for text in SWEEPS[words.sweep](words.count, words.seed):
        found += 1
        print(text[:500])
    print(f"{words.sweep}: {words.count} tried, {found} found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
