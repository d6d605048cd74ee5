"""Asks a loader what platforms and devices there are; prints JSON. Run as a program: drivers may crash, or print.

    python query.py libOpenCL.so.1  ->  {"platforms": [{"name": ..., "devices": [{"name": ..., ...}]}]}
                                        {"error": "libOpenCL.so.1: cannot open shared object file"}

Only Python's own library is imported: it starts in 20 ms and needs no path.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys

CL_SUCCESS = 0
CL_DEVICE_NOT_FOUND = -1
CL_PLATFORM_NOT_FOUND_KHR = -1001
CL_DEVICE_TYPE_ALL = 0xFFFFFFFF

PLATFORM_TEXTS = {"profile": 0x0900, "version": 0x0901, "name": 0x0902, "vendor": 0x0903}
DEVICE_TEXTS = {
    "name": 0x102B, "vendor": 0x102C, "driver_version": 0x102D, "profile": 0x102E, "version": 0x102F,
    "extensions": 0x1030, "c_version": 0x103D,
}  # fmt: skip
DEVICE_NUMBERS = {
    "type": 0x1000, "compute_units": 0x1002, "work_group_size": 0x1004, "clock_mhz": 0x100C, "address_bits": 0x100D,
    "allocation_bytes": 0x1010, "alignment_bits": 0x1019, "single_fp_config": 0x101B, "memory_bytes": 0x101F,
    "local_memory_bytes": 0x1023, "available": 0x1027, "compiler_available": 0x1028, "half_fp_config": 0x1033,
    "unified_memory": 0x1035,
}  # fmt: skip
WORK_ITEM_SIZES = 0x1005
BUILD_LOG = 0x1183
POCL = "Portable Computing Language"


class Refused(Exception):
    pass


def query(library: str) -> dict[str, object]:
    try:
        cl = ctypes.CDLL(library)
        names = [cl[name] for name in ("clGetPlatformIDs", "clGetPlatformInfo", "clGetDeviceIDs", "clGetDeviceInfo")]
    except (OSError, AttributeError) as error:
        return {"error": str(error)}
    get_platforms, platform_info, get_devices, device_info = names
    try:
        platforms = handles(lambda room, ids, found: get_platforms(room, ids, found), CL_PLATFORM_NOT_FOUND_KHR)
    except Refused as error:
        return {"error": f"clGetPlatformIDs: {error}"}
    told: list[dict[str, object]] = []
    for platform in platforms:
        about: dict[str, object] = {key: text(platform_info, platform, number) for key, number in PLATFORM_TEXTS.items()}
        about["devices"] = []
        try:
            devices = handles(
                lambda room, ids, found, platform=platform: get_devices(
                    ctypes.c_void_p(platform), ctypes.c_uint64(CL_DEVICE_TYPE_ALL), room, ids, found
                ),
                CL_DEVICE_NOT_FOUND,
            )
            asked = cl if about["name"] == POCL else None
            about["devices"] = [describe(device_info, device) | compiler_of(asked, device) for device in devices]
        except Refused as error:
            about["error"] = f"clGetDeviceIDs: {error}"
        told.append(about)
    return {"platforms": told}


def describe(device_info, device: int) -> dict[str, object]:  # type: ignore[no-untyped-def]
    about: dict[str, object] = {key: text(device_info, device, number) for key, number in DEVICE_TEXTS.items()}
    about |= {key: int.from_bytes(info(device_info, device, number)[:8], sys.byteorder) for key, number in DEVICE_NUMBERS.items()}
    sizes = info(device_info, device, WORK_ITEM_SIZES)
    word = struct.calcsize("N")
    about["work_item_sizes"] = list(struct.unpack(f"{len(sizes) // word}N", sizes[: len(sizes) // word * word]))
    return about


def compiler_of(cl, device: int) -> dict[str, object]:  # type: ignore[no-untyped-def]
    return {"compiler_error": compiler_error(cl, device)} if cl is not None else {}


def compiler_error(cl, device: int) -> str:  # type: ignore[no-untyped-def]
    """What its compiler says about a kernel that does nothing; empty where it takes it. PoCL hands LLVM the name of the processor,
    and refuses every kernel on one that is newer than its LLVM: `error: unknown target CPU 'generic'`."""
    void, code = ctypes.c_void_p, ctypes.c_int(0)
    cl.clCreateContext.restype = cl.clCreateProgramWithSource.restype = void
    ids = (void * 1)(device)
    context = cl.clCreateContext(None, 1, ids, None, None, ctypes.byref(code))
    if not context:
        return f"clCreateContext: error {code.value}"
    source = ctypes.c_char_p(b"kernel void nothing(global float *x) { x[0] = 0.0f; }")
    program = cl.clCreateProgramWithSource(void(context), 1, ctypes.byref(source), None, ctypes.byref(code))
    if not program:
        return f"clCreateProgramWithSource: error {code.value}"
    status = cl.clBuildProgram(void(program), 1, ids, None, None, None)
    if status == CL_SUCCESS:
        return ""
    told = text(lambda of, *rest: cl.clGetProgramBuildInfo(void(program), of, *rest), device, BUILD_LOG)
    return next((line.strip() for line in told.splitlines() if "error" in line), f"clBuildProgram: error {status}")


def handles(get, none: int) -> list[int]:  # type: ignore[no-untyped-def]
    found = ctypes.c_uint(0)
    status = get(0, None, ctypes.byref(found))
    if status == none or (status == CL_SUCCESS and not found.value):
        return []
    if status != CL_SUCCESS:
        raise Refused(f"error {status}")
    ids = (ctypes.c_void_p * found.value)()
    status = get(found, ids, None)
    if status != CL_SUCCESS:
        raise Refused(f"error {status}")
    return [handle for handle in ids if handle]


def info(call, handle: int, number: int) -> bytes:  # type: ignore[no-untyped-def]
    """Empty where the driver does not know the question (the half-precision one is of an extension)."""
    size = ctypes.c_size_t(0)
    if call(ctypes.c_void_p(handle), ctypes.c_uint(number), ctypes.c_size_t(0), None, ctypes.byref(size)) != CL_SUCCESS:
        return b""
    room = ctypes.create_string_buffer(max(1, size.value))
    if call(ctypes.c_void_p(handle), ctypes.c_uint(number), size, room, None) != CL_SUCCESS:
        return b""
    return room.raw[: size.value]


def text(call, handle: int, number: int) -> str:  # type: ignore[no-untyped-def]
    """Up to the NUL, as C sees it: these strings are parts of keys. Bytes that are no UTF-8 survive as surrogates."""
    return info(call, handle, number).split(b"\0")[0].decode("utf-8", "surrogateescape")


def main() -> None:
    answer = os.dup(1)
    os.dup2(2, 1)  # what a driver prints is not part of the answer
    said = json.dumps(query(sys.argv[1])).encode("ascii")
    with os.fdopen(answer, "wb") as out:
        out.write(said)
    os._exit(0)  # without the drivers' clean-up, in which some crash


if __name__ == "__main__":
    main()
