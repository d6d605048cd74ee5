"""The pictures of `docs/concepts`, one per page.

    .venv/bin/python scripts/concept_pictures.py

Writes docs/concepts/*.svg, which are committed. A test compares them with what this script draws.
"""

from __future__ import annotations

from pathlib import Path

from drawing import Line, Picture

FOLDER = Path(__file__).parents[1] / "docs" / "concepts"


def bold(text: str) -> Line:
    return Line(text, "bold")


def mono(text: str) -> Line:
    return Line(text, "mono")


def small(text: str) -> Line:
    return Line(text, "small soft")


def pipeline() -> Picture:
    """The line of stages: what each one takes, and what it leaves behind."""
    p = Picture("The line of stages", 1040, 400)
    stages = [
        ("import", "frontends", "blue", "typed graph"), ("optimise", "passes", "blue", "fused graph"),
        ("kernels", "kernels", "violet", "+ kernel, tile"), ("memory", "memory, fitting", "green", "+ addresses"),
        ("package", "package", "amber", "C project"), ("build", "run", "amber", "library, app"),
    ]  # fmt: skip
    p.box(20, 60, 110, 64, "grey", [bold("model"), small(".onnx .tflite")])
    p.text(75, 148, ".pt2 .keras .ig", "small soft", "middle")
    x, step, width = 160.0, 146, 126
    p.arrow((130, 92), (x, 92))
    for i, (stage, package, colour, result) in enumerate(stages):
        left = x + i * step
        p.box(left, 60, width, 64, colour, [bold(stage), small(package)])
        if i:
            p.arrow((left - step + width, 92), (left, 92))
        p.arrow((left + width / 2, 124), (left + width / 2, 172))
        p.text(left + width / 2, 192, result, "small", "middle")
    p.text(20, 36, "Each stage takes and returns plain data.", "soft")
    p.box(160, 214, 4 * step - 20, 64, "grey", [
        bold("one .ig text file, one line per value"), "stop after any stage, edit the file, resume from it",
    ])  # fmt: skip
    p.box(160 + 4 * step, 214, 2 * step - 20, 64, "grey", [bold("the package folder"), "compiles without Intaglio"])
    p.box(160, 316, 4 * step - 20, 58, "green", [
        "with a RAM limit, fitting searches for a plan that fits:", "stripes, tensors computed twice, other memories",
    ])  # fmt: skip
    p.arrow((160 + 3.43 * step, 278), (160 + 3.43 * step, 316), dashed=True)
    p.box(160 + 4 * step, 316, 2 * step - 20, 58, "grey", [bold("run, validate, profile"), "host, emulated core, OpenCL"])
    p.arrow((160 + 5 * step - 10, 278), (160 + 5 * step - 10, 316))
    return p


def ir() -> Picture:
    """One line of the IR, and which stage writes which part of it."""
    p = Picture("One value of the IR, stage by stage", 1040, 420)
    parts = [
        ('relu1_1 "relu1":', "blue", "name", "in C, and in the model"),
        ("f32[1,8,8,8] NHWC", "blue", "type", "element type, shape, layout, scale"),
        ("@arena+0", "green", "address", "region and offset in bytes"),
        ("= conv(conv1_1, conv1_weight, conv1_bias, ..., epilogue=[relu(0)])", "blue", "operator", "operands, then fields"),
        ("using conv_nhwc(tile=14x1)", "violet", "kernel", "name and tile"),
        ("# /conv1/Conv", "blue", "source", "the node of the model"),
    ]
    p.text(20, 34, "A value is one line. Each stage adds to the same line (here with AVX2, some fields left out):", "soft")
    x, y = 20.0, 60.0
    for i, (text, colour, name, about) in enumerate(parts):
        width = len(text) * 8.2 + 24
        if i == 3:
            x, y = 20.0, 160.0
        p.box(x, y, width, 34, colour, [mono(text)])
        p.text(x + 4, y + 54, name, "bold small")
        p.text(x + 4, y + 72, about, "small soft")
        x += max(width, len(about) * 7.2) + 16
    rows = [
        ("import", "blue", "name, type, operator, source: the graph of the model"),
        ("optimise", "blue", "the same parts; passes rewrote the operators"),
        ("kernels", "violet", "adds `using`: the kernel, and its tile if it has one"),
        ("memory", "green", "adds `@`: the address, and lines for stripes"),
    ]
    for i, (stage, colour, what) in enumerate(rows):
        p.box(20, 262 + i * 36, 110, 28, colour, [bold(stage)])
        p.text(146, 262 + i * 36 + 19, what)
    p.box(720, 270, 300, 118, "grey", [
        bold("two files"), mono("digits.ig"), small("text, with the small constants"),
        mono("digits.safetensors"), small("large constants, by SHA-256"),
    ])  # fmt: skip
    return p


def kernels() -> Picture:
    """From a node to a kernel: the table of choices, the parts of a contraction, and the proof."""
    p = Picture("How a kernel is chosen and made", 1040, 560)
    p.text(20, 32, "1  choose: the first row of the table that applies", "bold")
    p.box(20, 50, 220, 96, "grey", [bold("layer and target"), mono("qmatmul"), mono("x86-64-v3")])
    p.arrow((240, 98), (290, 98))
    rows = [
        ("qmatmul_rows", "refused, with a reason"), ("qmatmul_dsp", "refused, with a reason"), ("qmatmul_tiles", "chosen"),
        ("qmatmul", "not needed"),
    ]  # fmt: skip
    for i, (name, reason) in enumerate(rows):
        y = 46 + i * 26
        p.box(290, y, 190, 22, "green" if reason == "chosen" else "grey", [mono(name)])
        p.text(494, y + 16, reason, "bold" if reason == "chosen" else "soft")
    p.text(760, 92, "compile --explain prints every row", "small soft")
    p.text(760, 112, "and the reason why it was not used", "small soft")
    p.arrow((385, 152), (385, 204))
    p.box(8, 204, 1024, 102, "grey", [])
    p.text(20, 192, "2  make: one contraction", "bold")
    p.text(400, 192, "depthwise, pooling and OpenCL kernels share Problem and epilogue, with loops of their own", "small soft")
    parts = [
        ("Problem", "the geometry, once:", "sizes, window, strides", "blue"),
        ("gather", "how operands are read:", "directly, staged, im2col", "blue"),
        ("micro-kernel", "pack, start, step, finish", "per instruction set", "violet"),
        ("epilogue", "bias, scale, activation,", "sum with another tensor", "amber"),
    ]
    for i, (name, first, second, colour) in enumerate(parts):
        x = 20 + i * 256
        p.box(x, 216, 232, 78, colour, [bold(name), small(first), small(second)])
        if i:
            p.arrow((x - 24, 255), (x, 255))
    p.arrow((520, 306), (520, 340))
    p.box(290, 340, 460, 52, "grey", [bold("loop IR"), small("loops, loads, stores, vectors; simplified while it is built")])
    p.text(20, 372, "3  prove and print", "bold")
    outs = [
        (20, "red", "interpreter", "runs any kernel in Python", "equals the numpy reference"),
        (276, "green", "C printer", "C99 with intrinsics", "equals the interpreter"),
        (532, "green", "OpenCL printer", "work-items by proof", "equals the reference"),
        (788, "grey", "packed constants", "in the order in which", "the kernel reads them"),
    ]
    p.rule(520, 392, 520, 412)
    p.rule(136, 412, 904, 412)
    for x, colour, name, first, second in outs:
        p.arrow((x + 116, 412), (x + 116, 446))
        p.box(x, 446, 232, 78, colour, [bold(name), small(first), small(second)])
    return p


def memory() -> Picture:
    """A plan of the demo's network, and how it is made to fit."""
    p = Picture("Lifetimes, places, the ladder and the checker", 1040, 520)
    left, bottom, wide, scale = 100.0, 380.0, 80.0, 0.11
    buffers = [
        ("relu1_1", 0, 1, 0, 2048, "blue"), ("image", 0, 0, 2048, 256, "amber"), ("pool1_2", 1, 2, 2048, 512, "green"),
        ("relu2_1", 2, 3, 0, 1024, "violet"), ("pool2_2", 3, 4, 1024, 256, "amber"),
    ]  # fmt: skip
    p.text(20, 32, "1  place: no two live buffers overlap", "bold")
    for level in (0, 512, 1024, 1536, 2048, 2560):
        y = bottom - level * scale
        p.rule(left, y, left + 6 * wide, y, dashed=level > 0)
        p.text(left - 8, y + 5, f"{level:,}", "small soft", "end")
    for name, first, last, offset, size, colour in buffers:
        y, h = bottom - (offset + size) * scale, size * scale
        p.box(left + first * wide + 3, y, (last - first + 1) * wide - 6, h, colour, [Line(name, "small")])
    for i, layer in enumerate(("conv1", "pool1", "conv2", "pool2", "dense", "softmax")):
        p.text(left + (i + 0.5) * wide, bottom + 20, layer, "small", "middle")
    p.text(left + 3 * wide, bottom + 42, "layers in order; a buffer lives from its first to its last layer", "small soft", "middle")
    p.text(left + 3 * wide, 82, "bytes of the arena; scores and probabilities are too small to show", "small soft", "middle")
    _ladder(p)
    p.text(20, 473, "3  check", "bold")
    p.box(110, 440, 910, 56, "red", [
        "A checker that shares no code with the planner walks every layer:",
        "each read finds the bytes that were written last, inside its region.",
    ])  # fmt: skip
    return p


def _ladder(p: Picture) -> None:
    p.text(620, 32, "2  fit: the ladder under a RAM limit", "bold")
    rungs = [
        ("order, in place, views, offsets", "costs nothing: always done", "green"),
        ("regions", "several memories: most traffic in the fastest", "green"),
        ("stripes", "layers a few rows at a time", "green"),
        ("made again", "cheap tensors, computed twice", "green"),
        ("--feed-rows, --quantize int8", "only suggested: the API or the results change", "grey"),
    ]
    for i, (name, about, colour) in enumerate(rungs):
        p.box(620, 56 + i * 70, 400, 54, colour, [bold(name), small(about)])
        if i:
            p.arrow((820, 40 + i * 70), (820, 56 + i * 70))


def package() -> Picture:
    """What is in the folder of a package, and who uses which part."""
    p = Picture("The package: what is in it, who uses what", 1040, 520)
    p.text(20, 36, "who", "bold")
    p.text(330, 36, "uses", "bold")
    p.text(752, 36, "for", "bold")
    rows = [
        ("application developer", ["include/NAME.h", "lib/libNAME.a, .so"], "one call: NAME_run(&in, &out)", "blue"),
        ("firmware team", ["src/*.c, Makefile, CMake", "library.json, zephyr/"], "builds it in their own project", "blue"),
        ("board bring-up", ["firmware/, bin/NAME.elf", "start-up, linker script"], "runs on the bare core", "amber"),
        ("test and release", ["test/*.npy", "src/NAME_selftest.c"], "the self-test, on the device too", "green"),
        ("reviewer", ["README.md, src/*.c", "comments: layer, shape, tile"], "reads what runs", "violet"),
        ("Intaglio's own commands", ["manifest.json", "ir/NAME.ig, ir/source.*"], "run, validate, profile, link", "grey"),
    ]
    for i, (who, files, what, colour) in enumerate(rows):
        y = 56 + i * 74
        p.box(20, y, 250, 56, colour, [who])
        p.arrow((270, y + 28), (330, y + 28))
        p.box(330, y, 330, 56, colour, [mono(f) for f in files])
        p.rule(660, y + 28, 740, y + 28, dashed=True)
        p.text(752, y + 33, what)
    return p


PICTURES = {"pipeline": pipeline, "ir": ir, "kernels": kernels, "memory": memory, "package": package}


def main() -> None:
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
