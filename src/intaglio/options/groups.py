"""Options of a compile in the order in which help shows them: by what a user wants to set."""

from __future__ import annotations

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Device and limits", ("target", "board", "ram", "flash", "memory")),
    ("Inputs and sizes", ("dims", "shapes", "most", "lengths", "random", "states", "stream", "feed_rows", "signature", "name")),
    (
        "Quantisation",
        ("quantize", "calibrate", "labels", "ranges", "max_error", "keep_float", "keep_int16", "keep_int8", "integer_io"),
    ),
    ("Speed and exactness", ("optimize", "exact", "threads", "cores", "variants", "tuning")),
    (
        "Memory and weights",
        ("arena", "io", "code", "weights", "weights_section", "weights_address", "export_plan", "import_plan"),
    ),
    (
        "Accelerators and OpenCL",
        ("accelerators", "accelerator_only", "devices", "precision", "limit_kernel_time"),
    ),
    ("Looking inside", ("explain", "stop_after", "dump_ir", "disabled", "verify")),
    ("Safety", ("safety", "style")),
    ("Package", ("archive", "archive_format", "force", "no_source", "no_ir", "sign", "template", "cc", "cflags")),
)


def group_of(name: str) -> str:
    """The group of an option; empty: it belongs to the command itself."""
    return next((group for group, names in GROUPS if name in names), "")
