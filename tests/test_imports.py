"""What importing costs, and who may import whom."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src" / "intaglio"


def layers() -> dict[str, int]:
    """The line in CONTRIBUTING.md: a package may import those before it; those in braces do not import each other."""
    text = (ROOT.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(r"^    (\{ errors .*?)\n\n", text, re.M | re.S)
    assert found is not None
    return {name: level for level, part in enumerate(found[1].split("<")) for name in re.findall(r"\w+", part)}


LEVEL = layers()


def test_importing_intaglio_loads_nothing_heavy() -> None:
    code = "import sys, intaglio; print([m for m in ('numpy', 'onnx', 'typer', 'rich', 'jinja2') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@cache
def modules() -> list[Path]:
    return sorted(p for p in ROOT.rglob("*.py") if p.name not in ("__main__.py",) and p != ROOT / "__init__.py")


def test_the_layer_rule() -> None:
    wrong = []
    for path in modules():
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        assert own in LEVEL, f"{own} has no place among the layers"
        above = sorted(name for name in imported(path) if name != own and LEVEL[name] >= LEVEL[own])
        wrong += [f"{path.relative_to(ROOT)} imports {name}" for name in above]
    assert wrong == []


def test_every_layer_is_a_package() -> None:
    there = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in modules()}
    assert set(LEVEL) == there


def test_no_package_is_empty() -> None:
    for place in ROOT.rglob("__init__.py"):
        others = [p for p in place.parent.rglob("*") if p.is_file() and p.name != "__init__.py" and "__pycache__" not in p.parts]
        assert others, f"{place.parent.name} is empty"


def test_no_circle_of_imports() -> None:
    """Also through imports inside of functions, which start-up time is the only reason for."""
    after = {name_of(path): sorted(set(imports(path))) for path in modules()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " imports ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for other in after.get(name, []):
                if other != name:
                    visit(other, (*trail, name))
            done.add(name)

    for name in after:
        visit(name, ())


def name_of(path: Path) -> str:
    return ".".join(("intaglio", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def imported(path: Path) -> set[str]:
    """Packages of ours that a file imports."""
    return {module.split(".")[1] for module in imports(path)}


@cache
def known() -> frozenset[str]:
    return frozenset(name_of(path) for path in modules())


@cache
def imports(path: Path) -> tuple[str, ...]:
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    """Modules of ours that a file imports when it runs; imports for the type checker alone do not count."""
    for node in statements(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("intaglio."):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known() else str(node.module) for name in names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("intaglio."))


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Those inside of others too. Expressions, which are most of a file, have none in them."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if not isinstance(node, ast.expr):
            yield node
            yield from statements(ast.iter_child_nodes(node))


def test_imports_inside_of_anything_are_seen() -> None:
    text = """
        if TYPE_CHECKING:
            import a
        class C:
            async def f(self):
                try:
                    import b
                except E:
                    with x:
                        import c
                match x:
                    case 1 if x:
                        while x:
                            import d
                    case _:
                        for y in x:
                            import e
    """
    found = [node for node in statements(ast.parse(textwrap.dedent(text)).body) if isinstance(node, ast.Import)]
    assert [node.names[0].name for node in found] == ["b", "c", "d", "e"]


def test_files_stay_small() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    assert {name: count for name, count in lines.items() if count > 500} == {}, "over 500 lines: split it"
