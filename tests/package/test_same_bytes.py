"""The same program gives the same bytes, wherever it is written."""

from __future__ import annotations

import pytest

from intaglio.package.archive import write_archive
from intaglio.package.manifest import digests, read_manifest
from intaglio.run.package import Package
from support.building import build
from support.programs import add_then_square


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Package, Package]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INTAGLIO_OBJECT_CACHE", "off")  # the compiler makes both
        first = build(add_then_square(weights=3000), tmp_path_factory.mktemp("a") / "p")
        second = build(add_then_square(weights=3000), tmp_path_factory.mktemp("somewhere-else") / "deep" / "p")
    return first, second


def test_every_file_is_the_same(twice: tuple[Package, Package]) -> None:
    a, b = (digests(p.folder) for p in twice)
    assert a == b
    assert {"lib/libtiny.so", "lib/libtiny.a", "bin/tiny", "src/tiny_weights.bin"} <= set(a)


@pytest.mark.parametrize("format", ["tar.gz", "zip"])
def test_archives_are_the_same(twice: tuple[Package, Package], format: str) -> None:
    a, b = (write_archive(p.folder, format).read_bytes() for p in twice)
    assert a == b


def test_the_manifest_reads_back(twice: tuple[Package, Package]) -> None:
    manifest = read_manifest(twice[0].folder)
    assert manifest.inputs[0].name == "the input"
    assert manifest.outputs[0].name == "the/output:0"
    assert manifest.layers[0].memory[0].bytes == 12000


def test_no_path_of_this_machine_is_in_the_package(twice: tuple[Package, Package]) -> None:
    needle = str(twice[0].folder.parent).encode()
    assert not [p for p in twice[0].folder.rglob("*") if p.is_file() and needle in p.read_bytes()]
