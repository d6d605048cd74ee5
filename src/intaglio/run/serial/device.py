"""A package's firmware behind a serial line, called like `host.Library`: inputs are written, it runs, outputs are read."""

from __future__ import annotations

import struct
import time
from enum import Enum

import numpy as np

from intaglio.errors import OurFault, UserError, quoted
from intaglio.ir.graph import Array
from intaglio.package.manifest import Manifest
from intaglio.run.host import firmware_stopped
from intaglio.run.serial.line import Line, SerialOptions, SerialPort, numbers
from intaglio.run.serial.protocol import Request

MORE_ROWS = 18  # NAME_MORE_ROWS


class SelfTest(Enum):
    PASSED = "passed"
    FAILED = "FAILED"
    NO_VECTORS = "has no test vectors"
    OTHER_WEIGHTS = "FAILED: the weights in flash do not belong to this code"


class SerialDevice:
    """One board; one sequence of inferences."""

    def __init__(self, manifest: Manifest, options: SerialOptions, line: Line | None = None) -> None:
        self.manifest, self.options = manifest, options
        self.line = Line(SerialPort(options), options) if line is None else line
        self.info = self.line.info
        self.cycles = 0  # of the last run; 0: the board has no counter
        self.seconds = 0.0  # that the last run took at most
        try:
            self._check()
            self.reset()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        manifest, info = self.manifest, self.info
        if info.build != manifest.build:
            what = f"the board runs another build: {quoted(info.name)} {info.build[:12]}, the package is `{manifest.name}` "
            hint = "flash the firmware of this package, or give the folder of the package that is on the board"
            raise UserError("other-package", what + (manifest.build[:12] or "without a digest"), where=self.options.port, hint=hint)
        told = [self._size(0, n) for n in range(info.inputs)], [self._size(1, n) for n in range(info.outputs)]
        rows = max(1, manifest.memory.fed_rows)
        wanted = [i.bytes // rows for i in manifest.inputs], [o.bytes for o in manifest.outputs]
        if (told, info.layers, max(1, info.rows)) != (wanted, len(manifest.layers), rows):
            raise OurFault("serial-refused", f"tensors on the board have {told} bytes, those of `{manifest.name}` {wanted}")

    def _size(self, kind: int, index: int) -> int:
        return numbers(self.line.ask(Request.TENSOR, struct.pack("<BH", kind, index)), "<I")[0]

    @property
    def clock_mhz(self) -> float | None:
        """Of the core: as told by the user, or by the firmware."""
        return self.options.clock_mhz or (self.info.clock_hz / 1e6 if self.info.clock_hz else None)

    def reset(self) -> None:
        """Start a new sequence."""
        self.line.ask(Request.RESET)

    def selftest(self) -> SelfTest:
        """The test vectors that are packed into the firmware."""
        code, what = numbers(self.line.ask(Request.SELFTEST, seconds=self.options.timeout_s), "<iB")
        if what == 0:
            return SelfTest.NO_VECTORS
        return SelfTest.OTHER_WEIGHTS if what == 2 else SelfTest.FAILED if code else SelfTest.PASSED

    def run(self, inputs: list[Array]) -> list[Array]:
        outputs: list[Array] = [np.empty(info.shape, info.type.dtype.numpy) for info in self.manifest.outputs]
        self.run_into(inputs, outputs)
        return outputs

    def run_into(self, inputs: list[Array], outputs: list[Array]) -> None:
        self.seconds = 0.0
        for info, array in zip(self.manifest.inputs, inputs, strict=True):
            if info.dims and array.shape != info.shape:
                what = f"a board on a serial line runs `{self.manifest.name}` at the largest sizes, `[{info.shape_text}]`"
                raise UserError("wrong-input", what, hint="give inputs of that size, or omit `--serial`")
        if rows := self.manifest.memory.fed_rows:
            code = self._run_rows(inputs[0].reshape(rows, -1))
        else:
            for index, array in enumerate(inputs):
                self._write(index, array.tobytes())
            code = self._go(Request.RUN)
        if code != 0:
            raise firmware_stopped(self.manifest.name, code)
        for index, array in enumerate(outputs):
            data = self._read(index, array.nbytes)
            array[...] = np.frombuffer(data, array.dtype).reshape(array.shape)

    def _run_rows(self, picture: Array) -> int:
        self.line.ask(Request.BEGIN)
        code = MORE_ROWS
        for row in picture:
            if code != MORE_ROWS:
                break
            self._write(0, row.tobytes())
            code = self._go(Request.PUSH)
        return code

    def _go(self, request: Request) -> int:
        start = time.monotonic()
        code, cycles = numbers(self.line.ask(request, seconds=self.options.timeout_s), "<iI")
        self.seconds += time.monotonic() - start
        self.cycles = cycles
        return code

    def _write(self, index: int, data: bytes) -> None:
        chunk = self.info.chunk
        for offset in range(0, len(data), chunk):
            self.line.ask(Request.WRITE, struct.pack("<HI", index, offset) + data[offset : offset + chunk])

    def _read(self, index: int, size_bytes: int) -> bytes:
        parts = []
        for offset in range(0, size_bytes, self.info.chunk):
            count = min(self.info.chunk, size_bytes - offset)
            parts.append(self.line.ask(Request.READ, struct.pack("<HIH", index, offset, count)))
            if len(parts[-1]) != count:
                raise OurFault("serial-refused", f"the board sent {len(parts[-1])} bytes of an output, not {count}")
        return b"".join(parts)

    def layer_cycles(self) -> list[int] | None:
        """Of the last run; None: the firmware was compiled without the hook."""
        if not self.info.hooked:
            return None
        found: list[int] = []
        while len(found) < self.info.layers:
            data = self.line.ask(Request.PROFILE, struct.pack("<I", len(found)))
            if not data or len(data) % 4:
                raise OurFault("serial-refused", f"the board told cycles of {len(found)} of {self.info.layers} layers")
            found += numbers(data, f"<{len(data) // 4}I")
        return found

    def close(self) -> None:
        self.line.close()
