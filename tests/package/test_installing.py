"""A package in other build systems: CMake (as a part, fetched, installed), pkg-config, C++."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from intaglio import Package, compile
from support.commands import DIGITS
from support.small_networks import TFLITE

needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake here")
needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ here")
MAIN = """#include <digits.h>
#include <stdio.h>
int main(void)
{
    static float image[DIGITS_INPUT_IMAGE_ELEMENTS], y[DIGITS_OUTPUT_PROBABILITIES_ELEMENTS];
#if DIGITS_ARENA_BYTES > 1000000
#error "too large for this product"
#endif
    const int code = digits_run_one(image, y);
    printf("%d %.6f\\n", code, (double)y[0]);
    return code;
}
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return compile(DIGITS, output=tmp_path_factory.mktemp("p") / "digits")


def did(*words: object, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, words)), cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def expected(package: Package) -> str:
    y = package.run({"image": np.zeros((1, 1, 8, 8), np.float32)})["probabilities"]
    return f"0 {y[0, 0]:.6f}"


def project(folder: Path, lines: str) -> Path:
    folder.mkdir()
    (folder / "main.c").write_text(MAIN)
    head = "cmake_minimum_required(VERSION 3.14)\nproject(product C)\n"
    tail = "add_executable(product main.c)\ntarget_link_libraries(product PRIVATE digits::digits)\n"
    (folder / "CMakeLists.txt").write_text(head + lines + tail)
    return folder


@needs_cmake
@pytest.mark.slow
@pytest.mark.parametrize("way", ["add_subdirectory", "FetchContent"])
def test_as_a_part_of_a_project(way: str, package: Package, tmp_path: Path) -> None:
    shutil.copytree(package.folder, tmp_path / "net")
    declare = f"FetchContent_Declare(digits SOURCE_DIR {tmp_path / 'net'})\n"
    fetch = f"include(FetchContent)\n{declare}FetchContent_MakeAvailable(digits)\n"
    lines = fetch if way == "FetchContent" else f"add_subdirectory({tmp_path / 'net'} net)\n"
    folder = project(tmp_path / "product", lines)
    did("cmake", "-B", "build", ".", cwd=folder)
    did("cmake", "--build", "build", cwd=folder)
    assert did("build/product", cwd=folder).strip() == expected(package)
    assert not list(folder.rglob("digits_app*")) and not (folder / "build" / "net" / "digits").is_file()


@needs_cmake
@pytest.mark.slow
def test_installed_and_found(package: Package, tmp_path: Path) -> None:
    shutil.copytree(package.folder, tmp_path / "net")
    prefix = tmp_path / "prefix"
    did("cmake", "-B", "b", f"-DCMAKE_INSTALL_PREFIX={prefix}", "-DCMAKE_INSTALL_LIBDIR=lib", ".", cwd=tmp_path / "net")
    did("cmake", "--build", "b", cwd=tmp_path / "net")
    did("cmake", "--install", "b", cwd=tmp_path / "net")
    folder = project(tmp_path / "product", "find_package(digits 0.1 REQUIRED)\n")
    did("cmake", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}", ".", cwd=folder)
    did("cmake", "--build", "build", cwd=folder)
    assert did("build/product", cwd=folder).strip() == expected(package)
    with_pkg_config(prefix, folder, package)


def with_pkg_config(prefix: Path, folder: Path, package: Package) -> None:
    if shutil.which("pkg-config") is None:
        return
    path = {"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    flags = did("pkg-config", "--cflags", "--libs", "digits", cwd=folder, **path).split()
    did("cc", "main.c", *flags, "-o", "by_pkg_config", cwd=folder)
    library = {"LD_LIBRARY_PATH": str(prefix / "lib")}
    assert did("./by_pkg_config", cwd=folder, **library).strip() == expected(package)


@pytest.mark.slow
def test_make_install(package: Package, tmp_path: Path) -> None:
    shutil.copytree(package.folder, tmp_path / "net")
    did("make", "install", f"PREFIX={tmp_path / 'prefix'}", cwd=tmp_path / "net")
    assert (tmp_path / "prefix" / "include" / "digits.hpp").is_file()
    (tmp_path / "product").mkdir()
    (tmp_path / "product" / "main.c").write_text(MAIN)
    with_pkg_config(tmp_path / "prefix", tmp_path / "product", package)


CPP = """#include <digits.hpp>
#include <cstdio>
#include <vector>
int main()
{
    static digits::model net;
    std::vector<float> image(DIGITS_INPUT_IMAGE_ELEMENTS);
    const digits::outputs y = net(image);
    std::printf("0 %.6f\\n", static_cast<double>(y.probabilities[0]));
    try {
        net(digits::view<const float>(image.data(), 3));
    } catch (const std::invalid_argument &) {
        return 0;
    }
    return 1;
}
"""
STRICT = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wundef", "-Werror"]


@needs_gxx
def test_a_model_is_an_object_in_c_plus_plus(package: Package, tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(CPP)
    library = package.folder / "lib" / "libdigits.a"
    did("g++", *STRICT, f"-I{package.folder / 'include'}", "main.cpp", library, "-o", "product", cwd=tmp_path)
    assert did("./product", cwd=tmp_path).strip() == expected(package)


@needs_gxx
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TFLITE))
def test_headers_of_all_kinds_of_networks_are_c_plus_plus(name: str, tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(TFLITE[name]())
    folder = compile(tmp_path / "net.tflite", output=tmp_path / "p", library_only=True, name="net").folder
    (tmp_path / "main.cpp").write_text('#include <net.hpp>\nint main() { return sizeof(net::model) < net::model::arena_bytes; }\n')
    did("g++", *STRICT, f"-I{folder / 'include'}", "-c", "main.cpp", "-o", "main.o", cwd=tmp_path)
