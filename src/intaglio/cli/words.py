"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model (.onnx, .tflite, .pt2, .keras, .h5) or an IR file (.ig).")]
Models = Annotated[list[Path], typer.Argument(metavar="MODEL...", help="The model file; several become entry points.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a package.")]
CcOption = Annotated[Optional[str], typer.Option("--cc", metavar="CC", help="C compiler: a command, or `zig`.")]
EmulatorOption = Annotated[
    Optional[str], typer.Option("--emulator", metavar="E", help="Emulator: unicorn or qemu. Default: unicorn.")
]
DeviceOption = Annotated[
    Optional[str],
    typer.Option("--device", metavar="D", help="OpenCL device: gpu, cpu, numbers such as 0.0, or a part of a name."),
]
EntryOption = Annotated[
    Optional[str], typer.Option("--entry", metavar="NAME", help="Entry point, of a package that has several.")
]
VariantOption = Annotated[
    Optional[str], typer.Option("--variant", metavar="V", help="Variant of the package, e.g. v3. Default: the best that runs here.")
]
SizeOption = Annotated[
    Optional[list[str]],
    typer.Option("--size", metavar="T=N", help="Size of a dimension that has a range. May be repeated. Default: the largest."),
]
CheckOption = Annotated[
    str, typer.Option("--cache-check", metavar="C", help="Test cached OpenCL programs: always, first (once per device) or never.")
]
NoCacheOption = Annotated[bool, typer.Option("--no-cache", help="Build OpenCL programs from source and do not store them.")]
SerialOption = Annotated[
    Optional[str], typer.Option("--serial", metavar="PORT", help="Run on the board that answers on this port, e.g. /dev/ttyACM0.")
]
BaudOption = Annotated[int, typer.Option("--baud", metavar="N", help="Baud rate of the serial port.", min=1, max=20_000_000)]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="S", help="Seconds that the board may take for one inference.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
RunOption = Annotated[bool, typer.Option("--run/--no-run", help="Time the package and compare it with its reference.")]
BudgetOption = Annotated[
    Optional[Path], typer.Option("--budget", metavar="B.toml", help="Budgets: ram, flash, time ... Exit code 1 if one is exceeded.")
]
