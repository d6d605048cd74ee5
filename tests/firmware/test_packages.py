"""The package as others take it: Arduino, PlatformIO, Zephyr, CMake, make."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from intaglio.run.firmware_tools import compile_flags, find_firmware_toolchain
from intaglio.run.package import Package
from intaglio.targets.target import find_target
from support.commands import DIGITS, Intaglio
from support.firmware_running import SEVERAL, firmware, integer_model, package_selftest
from support.strict import CLANG

ARDUINO = """#pragma once
#include <stddef.h>
#include <stdint.h>
struct Line {
    void begin(long) {}
    void write(uint8_t) {}
    int available() { return 1; }
    int read() { return 0; }
    void print(const char *) {}
    void println(uint32_t) {}
    void println(const char *) {}
    explicit operator bool() const { return true; }
};
static Line Serial;
static inline uint32_t millis() { return 0; }
static inline uint32_t micros() { return 0; }
static inline void delay(uint32_t) {}
static inline void yield() {}
#define F_CPU 64000000L
"""
needs_gcc = pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="there is no arm-none-eabi-gcc here")


@pytest.fixture(scope="module", params=["static", "caller", "several static", "several caller", "read static"])
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("packages")
    arena = request.param.split()[-1]
    if arena == request.param:
        return firmware(integer_model(folder), folder / "out", name="net", board="mps2-an386", arena=arena)
    (folder / "several.toml").write_text(SEVERAL)
    weights = "read" if request.param.startswith("read") else "mapped"
    words = {"name": "net", "board": "mps2-an386", "arena": arena, "weights": weights, "memory": folder / "several.toml"}
    return firmware(DIGITS, folder / "out", **words)


@pytest.mark.parametrize("which", ["net_selftest", "net_serial"])
def test_an_arduino_sketch_finds_headers_and_sources_in_src_alone(which: str, package: Package, tmp_path: Path) -> None:
    """As Arduino's builder does it: everything below src is compiled, and src is the only folder of headers."""
    properties = (package.folder / "library.properties").read_text()
    keys = dict(line.split("=", 1) for line in properties.splitlines())
    assert keys["name"] == "net" and keys["includes"] == "net.h,net_device.h" and keys["version"].count(".") == 2
    sketch = tmp_path / "sketch.cpp"
    ino = package.folder / "examples" / which / f"{which}.ino"
    sketch.write_text('#include "Arduino.h"\n' + ino.read_text())
    (tmp_path / "Arduino.h").write_text(ARDUINO)
    target = find_target("cortex-m4f")
    tools = find_firmware_toolchain(None, target)
    flags = [f for f in compile_flags(tools, target) if f not in ("-std=c99", "-fstack-usage")]
    flags += ["-fsyntax-only", "-Wconversion", "-Werror", "-Isrc"]
    compiled = partial(subprocess.run, cwd=package.folder, check=True)
    compiled((*tools.compiler, "-x", "c++", "-std=c++17", *flags, "-Wno-unused-function", f"-I{tmp_path}", str(sketch)))
    sources = sorted((package.folder / "src").rglob("*.c"))
    assert sources
    compiled((*tools.compiler, "-std=c99", *flags, *map(str, sources)))


@pytest.mark.parametrize("config", ["", "CONFIG_INTAGLIO_NET_SERIAL"])
def test_zephyr_s_sample_is_c(config: str, package: Package, tmp_path: Path) -> None:
    (tmp_path / "zephyr" / "sys").mkdir(parents=True)
    (tmp_path / "zephyr" / "sys" / "printk.h").write_text("void printk(const char *text, ...);\n")
    stub = "#include <stdint.h>\n#define __aligned(n) __attribute__((aligned(n)))\n"
    stub += "uint32_t k_cycle_get_32(void);\nuint32_t k_cyc_to_us_floor32(uint32_t cycles);\n"
    (tmp_path / "zephyr" / "kernel.h").write_text(stub + "void k_yield(void);\n")
    (tmp_path / "zephyr" / "device.h").write_text("struct device;\n#define DT_CHOSEN(x) x\n#define DEVICE_DT_GET(x) NULL\n")
    (tmp_path / "zephyr" / "drivers").mkdir()
    uart = "int uart_poll_in(const struct device *from, unsigned char *to);\n"
    uart += "void uart_poll_out(const struct device *to, unsigned char byte);\n"
    (tmp_path / "zephyr" / "drivers" / "uart.h").write_text(uart)
    target = find_target("cortex-m4f")
    tools = find_firmware_toolchain(None, target)
    flags = (*compile_flags(tools, target), "-fsyntax-only", "-Iinclude", f"-I{tmp_path}", "-Wno-format", "-Werror")
    flags += (f"-D{config}",) if config else ()
    subprocess.run((*tools.compiler, *flags, "zephyr/sample/src/main.c"), cwd=package.folder, check=True)


def test_platformio_s_file_is_json(package: Package) -> None:
    about = json.loads((package.folder / "library.json").read_text())
    assert about["name"] == "net" and about["headers"] == ["net.h", "net_device.h"]


def test_zephyr_s_module_names_files_that_are_there(package: Package) -> None:
    module = (package.folder / "zephyr" / "module.yml").read_text()
    assert "cmake: zephyr\n" in module and "kconfig: zephyr/Kconfig\n" in module and "- zephyr/sample\n" in module
    for path in ("CMakeLists.txt", "Kconfig", "sample/CMakeLists.txt", "sample/prj.conf", "sample/src/main.c"):
        assert (package.folder / "zephyr" / path).is_file()


@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake here")
def test_zephyr_s_cmake_takes_every_source(package: Package, tmp_path: Path) -> None:
    functions = "zephyr_library_named zephyr_library_include_directories zephyr_library_compile_options zephyr_include_directories"
    lines = ["set(CONFIG_INTAGLIO_NET y)", *(f"function({f})\nendfunction()" for f in functions.split())]
    lines += ["function(zephyr_compile_definitions_ifdef)\nendfunction()"]
    lines += ["function(zephyr_library_sources)\n  foreach(f ${ARGN})\n    message(${f})\n  endforeach()\nendfunction()"]
    script = tmp_path / "script.cmake"
    script.write_text("\n".join([*lines, f'include("{package.folder}/zephyr/CMakeLists.txt")', ""]))
    done = subprocess.run(("cmake", "-P", str(script)), capture_output=True, text=True, check=True)
    told = {Path(line).name for line in done.stderr.split()}
    assert told == {p.name for p in (package.folder / "src").glob("*.c")}


@needs_gcc
@pytest.mark.parametrize("tool", ["make", pytest.param("cmake", marks=pytest.mark.slow)])
def test_the_firmware_builds_without_us(tool: str, package: Package, tmp_path: Path) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"there is no {tool} here")
    folder = tmp_path / "copy"
    shutil.copytree(package.folder, folder)
    if tool == "make":
        subprocess.run(("make", "-j2"), cwd=folder, check=True, capture_output=True)
    else:
        subprocess.run(
            ("cmake", "-B", "build", "--toolchain", "cmake/toolchain.cmake"), cwd=folder, check=True, capture_output=True
        )
        subprocess.run(("cmake", "--build", "build"), cwd=folder, check=True, capture_output=True)
    shutil.copyfile(folder / "build" / "net.elf", folder / "bin" / "net.elf")
    assert package_selftest(Package.load(folder))[0] == 0


@pytest.mark.parametrize("arena", ["static", "caller"])
def test_a_package_with_a_profile_prints_cycles_of_each_layer(arena: str, tmp_path: Path) -> None:
    made = firmware(DIGITS, tmp_path / "out", name="net", arena=arena, cflags=(*CLANG, "-DNET_HOOK"))
    code, said = package_selftest(made)
    assert code == 0
    rows = said.split("self-test passed\n")[1].splitlines()
    assert [row.split()[0] for row in rows] == [str(i) for i in range(len(made.manifest.layers))]


def test_a_board_s_own_counter_of_cycles(tmp_path: Path) -> None:
    made = firmware(integer_model(tmp_path), tmp_path / "out", name="net", board="esp32-c3", cflags=(*CLANG, "-DNET_HOOK"))
    text = (made.folder / "src" / "net_profile.c").read_text()
    assert '"csrwi 0x7e0, 1' in text and '"csrr %0, 0x7e2' in text and "mcycle\\n" not in text and ", mcycle" not in text
    assert package_selftest(made)[0] == 0  # on an emulator without it, too


@pytest.mark.slow
@pytest.mark.parametrize(("optimize", "level"), [("speed", "-O3"), ("balanced", "-O2"), ("size", "-Os")])
def test_platformio_keeps_the_level_that_it_is_given(optimize: str, level: str, tmp_path: Path) -> None:
    made = firmware(integer_model(tmp_path), tmp_path / "out", name="net", board="rp2040", optimize=optimize)
    build = json.loads((made.folder / "library.json").read_text())["build"]
    assert level in build["flags"] and level not in build["unflags"] and {"-Os", "-O2", "-O3"} <= {level, *build["unflags"]}


@pytest.mark.slow
def test_the_template_can_be_edited(intaglio: Intaglio, tmp_path: Path) -> None:
    assert intaglio("template", "export", "baremetal", tmp_path / "mine").code == 0
    main = tmp_path / "mine" / "firmware" / "main.c.j2"
    main.write_text(main.read_text() + "\nint of_mine(void);\nint of_mine(void)\n{\n    return 3;\n}\n")
    made = firmware(integer_model(tmp_path), tmp_path / "out", name="net", template=tmp_path / "mine")
    assert "of_mine" in (made.folder / "firmware" / "main.c").read_text()
    assert package_selftest(made)[0] == 0
