"""Which OpenCL loader is taken, what it shows, and what is said when there is none."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from intaglio.errors import ToolError, UserError
from intaglio.run.opencl import answers, devices, loader
from intaglio.run.opencl.answers import Answer, OpenCLDevice, Platform, ask
from intaglio.run.opencl.devices import find_device, list_devices
from intaglio.run.opencl.loader import Loader, find_loader, pip_drivers, pip_loader
from support.pocl import needs_pocl


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (loader.VARIABLE, devices.VARIABLE, "OCL_ICD_VENDORS", "PYOPENCL_HOME"):
        monkeypatch.delenv(name, raising=False)
    loader._find.cache_clear()
    yield
    loader._find.cache_clear()


@pytest.fixture
def pip_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a loader or drivers of its own."""
    monkeypatch.setattr(loader, "SYSTEM", "libNoOpenCL.so.1")
    monkeypatch.setattr(loader, "system_drivers", lambda: ())


@needs_pocl
@pytest.mark.usefixtures("pip_alone")
def test_pocl_of_pip_is_a_device() -> None:
    device = find_device("cpu")
    assert find_loader().library == str(pip_loader())
    pocl = find_device("portable computing")
    assert device.kind == "cpu" and device.address_bits == 64 and device.memory_bytes > 1 << 28
    assert pocl.driver_version and "OpenCL C 1.2" in pocl.c_version and pocl.work_group_size >= 256
    assert len({(d.platform_name, d.name) for d in list_devices()}) == len(list_devices())  # none is shown twice


@needs_pocl
@pytest.mark.usefixtures("pip_alone")
def test_a_kernel_runs_where_there_is_no_linker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PoCL calls `ld`, and aborts without."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("INTAGLIO_CACHE_DIR", str(tmp_path / "cache"))
    found = find_loader()
    assert found.environment["PATH"].startswith(str(tmp_path / "cache"))
    env = found.child_environment() | {"POCL_CACHE_DIR": str(tmp_path / "pocl")}
    command = [sys.executable, "-c", SQUARES, found.library, find_device("portable").place]
    done = subprocess.run(command, env=env, capture_output=True)
    assert done.stdout.split() == [b"0.0", b"1.0", b"4.0", b"9.0"], done.stderr


SQUARES = """
import ctypes as C, sys
cl, V, N = C.CDLL(sys.argv[1]), C.c_void_p, C.c_size_t
for name in ("clCreateContext", "clCreateCommandQueue", "clCreateProgramWithSource", "clCreateKernel", "clCreateBuffer"):
    getattr(cl, name).restype = V
platforms, device = (V * 8)(), V()
cl.clGetPlatformIDs(8, platforms, None)
cl.clGetDeviceIDs(V(platforms[int(sys.argv[2].split(".")[0])]), C.c_uint64(0xFFFFFFFF), 1, C.byref(device), None)
context = V(cl.clCreateContext(None, 1, C.byref(device), None, None, None))
queue = V(cl.clCreateCommandQueue(context, device, C.c_uint64(0), None))
text = C.c_char_p(b"__kernel void squares(__global float *x) { x[get_global_id(0)] *= x[get_global_id(0)]; }")
program = V(cl.clCreateProgramWithSource(context, 1, C.byref(text), None, None))
assert cl.clBuildProgram(program, 1, C.byref(device), b"-cl-std=CL1.2", None, None) == 0
kernel, data = V(cl.clCreateKernel(program, b"squares", None)), (C.c_float * 4)(0, 1, 2, 3)
buffer = V(cl.clCreateBuffer(context, C.c_uint64(0x21), N(16), data, None))
cl.clSetKernelArg(kernel, 0, N(8), C.byref(buffer))
assert cl.clEnqueueNDRangeKernel(queue, kernel, 1, None, C.byref(N(4)), None, 0, None, None) == 0
assert cl.clEnqueueReadBuffer(queue, buffer, 1, N(0), N(16), data, 0, None, None) == 0
print(*data)
"""


@needs_pocl
@pytest.mark.usefixtures("pip_alone")
def test_where_the_cache_folder_cannot_be_written_a_temporary_one_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("INTAGLIO_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert list_devices()


@needs_pocl
def test_the_loader_of_pip_works_when_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a child process of ours that asks again."""
    named = os.path.relpath(str(pip_loader()))
    monkeypatch.setenv(loader.VARIABLE, named)
    assert find_loader().library == named and list_devices()


def test_drivers_come_from_wherever_pip_put_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Intel's wheel has an .icd file with a path of somebody else's machine."""
    info = tmp_path / "intel_opencl_rt-2026.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: intel-opencl-rt\nVersion: 2026.2\n")
    (info / "RECORD").write_text("lib/libintelocl.so,,\nlib/libOpenCL.so,,\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libintelocl.so").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("INTAGLIO_CACHE_DIR", str(tmp_path / "cache"))
    driver = str((tmp_path / "lib" / "libintelocl.so").resolve())
    assert driver in pip_drivers.__wrapped__()
    folder = loader._pip_environment((driver,), loader.SYSTEM)["OCL_ICD_VENDORS"]
    assert [path.read_text() for path in Path(folder).glob("*.icd")] == [f"{driver}\n"]


def test_without_a_loader_it_is_said_what_brings_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "SYSTEM", "libNoOpenCL.so.1")
    monkeypatch.setattr(loader, "pip_loader", lambda: None)
    monkeypatch.setattr(loader, "pip_drivers", lambda: ())
    with pytest.raises(ToolError, match=r"error\[no-opencl\]") as caught:
        find_device()
    assert "pip install -e '.[opencl]'" in caught.value.hint


@pytest.mark.parametrize(
    ("answer", "slug", "said"),
    [
        (Answer(), "no-opencl-platform", "no driver"),
        (Answer(crash="SIGSEGV"), "opencl-crashed", "listed its devices: SIGSEGV"),
        (Answer((Platform(0, "P", "V", "1", "", (), "no memory"),)), "no-opencl-device", "`P`: no memory"),
    ],
)
def test_what_is_said_of_a_loader_without_devices(answer: Answer, slug: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "ask", lambda library, environment: answer)
    with pytest.raises(ToolError, match=said) as caught:
        find_device()
    assert caught.value.slug == slug and caught.value.hint


def test_a_named_loader_without_drivers_is_not_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(loader.VARIABLE, "libOpenCL.so.1")
    monkeypatch.setattr(loader, "ask", lambda library, environment: Answer())
    with pytest.raises(ToolError, match=r"of \$INTAGLIO_OPENCL_LIBRARY, finds no driver"):
        find_loader()


def test_a_library_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libOpenCL.so").write_text("not a library")
    monkeypatch.setenv(loader.VARIABLE, str(tmp_path / "libOpenCL.so"))
    with pytest.raises(ToolError, match="which is not an OpenCL library"):
        find_loader()


@pytest.mark.parametrize("body", ["os.abort()", "print('hello'); os._exit(0)", "raise SystemExit(7)"])
def test_a_driver_that_crashes_takes_only_its_own_process_down(body: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "query.py").write_text(f"import os\n{body}\n")
    monkeypatch.setattr(answers, "__file__", str(tmp_path / "answers.py"))
    assert ask("libOpenCL.so.1", {}).crash


# Which device is meant


def device(place: str, kind: str, name: str, platform: str) -> OpenCLDevice:
    texts = {field.name: "" for field in dataclasses.fields(OpenCLDevice)}
    numbers = {"address_bits": 64, "compute_units": 4, "extensions": (), "work_item_sizes": ()}
    return OpenCLDevice(**{**texts, **numbers, "place": place, "kind": kind, "name": name, "platform_name": platform})  # type: ignore[arg-type]


CPU = device("0.0", "cpu", "AMD EPYC", "Portable Computing Language")
FPGA = device("1.0", "accelerator", "Emulated FPGA", "Intel(R) FPGA")
SLOW_GPU = device("2.0", "gpu", "Mali-T860", "ARM Platform")
GPU = device("2.1", "gpu", "Mali-G78", "ARM Platform")


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [(CPU,), (FPGA,), (SLOW_GPU, GPU)]
    platforms = tuple(Platform(n, group[0].platform_name, "", "", "", group) for n, group in enumerate(groups))
    found = Loader("libOpenCL.so.1", {}, Answer(platforms))
    monkeypatch.setattr(devices, "find_loader", lambda: found)


REFUSING = dataclasses.replace(CPU, compiler_problem="error: unknown target CPU 'generic'")
INTEL = device("0.0", "cpu", "AMD EPYC", "Intel(R) OpenCL")


def shows(*found: OpenCLDevice) -> Answer:
    return Answer(tuple(Platform(n, one.platform_name, "", "", "", (one,)) for n, one in enumerate(found)))


@pytest.mark.usefixtures("pip_alone")
def test_pocl_is_left_out_where_its_compiler_does_not_know_the_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drivers = ("/lib/libpocl-1.so", "/lib/libintelocl.so")

    def ask(library: str, environment: dict[str, str]) -> Answer:
        if library == loader.SYSTEM:
            return Answer(problem="it is not there")
        named = "".join(path.read_text() for path in Path(environment["OCL_ICD_VENDORS"]).glob("*.icd"))
        return shows(REFUSING, INTEL) if "pocl" in named else shows(INTEL)

    monkeypatch.setenv("INTAGLIO_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(loader, "pip_loader", lambda: Path("/lib/libOpenCL-1.so"))
    monkeypatch.setattr(loader, "pip_drivers", lambda: drivers)
    monkeypatch.setattr(loader, "ask", ask)
    assert list_devices() == (INTEL,)


@pytest.mark.parametrize("which", [None, "cpu", "0.0"])
def test_a_compiler_that_does_not_know_the_processor_is_said(which: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "ask", lambda library, environment: shows(REFUSING))
    with pytest.raises(ToolError, match="does not know this processor: unknown target CPU 'generic'") as caught:
        find_device(which)
    assert caught.value.slug == "opencl-compiler" and "[opencl-intel]" in caught.value.hint


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(
    ("which", "meant"),
    [
        (None, SLOW_GPU), ("gpu", SLOW_GPU), ("CPU", CPU), ("accelerator", FPGA), ("2.1", GPU), ("0.0", CPU),
        ("g78", GPU), ("epyc", CPU), ("fpga", FPGA), ("arm platform", SLOW_GPU),
    ],
)  # fmt: skip
def test_words_for_a_device(which: str | None, meant: OpenCLDevice) -> None:
    assert find_device(which) == meant


@pytest.mark.usefixtures("four")
def test_the_environment_names_a_device_and_a_word_goes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(devices.VARIABLE, "epyc")
    assert find_device() == CPU and find_device("gpu") == SLOW_GPU


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize("which", ["adreno", "2.2", "7.0", "tpu"])
def test_a_device_that_is_not_there_is_answered_with_those_that_are(which: str) -> None:
    with pytest.raises(UserError, match=r"error\[no-opencl-device\]") as caught:
        find_device(which)
    assert f"`{which}`" in caught.value.message and "`2.1` Mali-G78 (gpu, ARM Platform)" in caught.value.message


def test_pyopencl_is_not_imported() -> None:
    code = "import sys; from intaglio.run.opencl.devices import list_devices; list_devices(); print('pyopencl' in sys.modules)"
    if importlib.util.find_spec("pyopencl") is None:
        pytest.skip("pyopencl is not installed")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout.strip() == "False"
