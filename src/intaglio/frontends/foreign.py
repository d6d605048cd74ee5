"""What to do about well-known operators of others that a file does not define: one row each, the first that matches."""

from __future__ import annotations

from fnmatch import fnmatchcase

_TENSOR_LIST = (
    "it is a recurrent layer as TensorFlow's loop: compile the `.keras` or `.h5` file itself, or convert with a batch of 1 "
    "and without `SELECT_TF_OPS`"
)
_MEDIAPIPE = "it is one of MediaPipe's: cut the model before it, and compute the rest in your application"
TFLITE: tuple[tuple[str, str], ...] = (
    ("FlexTensorList*", _TENSOR_LIST),
    ("FlexWhile", _TENSOR_LIST),
    ("Flex*", "it needs TensorFlow itself: convert again without `SELECT_TF_OPS`, or compile the `.keras` or `.h5` file"),
    ("edgetpu-custom-op", "the file was compiled for an Edge TPU: use the `.tflite` file from before `edgetpu_compiler`"),
    ("ethos-u", "the file was compiled for an Ethos-U: use the `.tflite` file from before Vela"),
    ("*ethos*", "the file was compiled for an Ethos-U: use the `.tflite` file from before Vela"),
    ("DISPATCH_OP", "the file was compiled for an NPU: use the `.tflite` file from before LiteRT's compiler plug-in"),
    ("MTKEXT_*", "it is one of MediaTek's converter: convert the model with LiteRT's own, from before that"),
    ("TfLiteHexagon*", "the file was compiled for a Hexagon DSP: use the `.tflite` file from before that"),
    ("Resampler", _MEDIAPIPE),
    ("AudioSpectrogram", "compute the spectrogram in your application, and cut the model after it"),
    ("Mfcc", "compute the features in your application, and cut the model after them"),
)
STRINGS = "do what is about strings in your application, and cut the model behind it"
BUILT_IN: tuple[tuple[str, str], ...] = (
    ("SKIP_GRAM", STRINGS),
    ("LSH_PROJECTION", "compute the hashes in your application, and cut the model behind it"),
    ("STABLEHLO_CUSTOM_CALL", "the file does not define what is called: export the model without it"),
)
_OPTIMISED = "it was put in by ONNX Runtime's optimiser: use the model from before that, or save it with `ORT_ENABLE_BASIC`"
_SEARCHES = "it runs a decoder word by word: compile the decoder alone, and choose the words in your application"
_UNPADDED = "it is for rows of different lengths without padding, on GPUs: export the model without that"
_ONE_PROCESSOR = "its numbers are stored for one kind of processor: quantise into `MatMulNBits` or `QuantizeLinear` instead"
_LENGTH = "its result is as long as the data makes it: compute it in your application, and cut the model before it"
ONNX: tuple[tuple[str, str, str], ...] = (
    ("com.microsoft.nchwc", "*", _OPTIMISED),
    ("com.ms.internal.nhwc", "*", _OPTIMISED),
    ("com.microsoft.experimental", "*", _OPTIMISED),
    ("com.microsoft", "Nhwc*", _OPTIMISED),
    ("com.microsoft", "*Search", _SEARCHES),
    ("com.microsoft", "Sampling", _SEARCHES),
    ("com.microsoft", "Packed*", _UNPADDED),
    ("com.microsoft", "Varlen*", _UNPADDED),
    ("com.microsoft", "*Padding", _UNPADDED),
    ("com.microsoft", "*Paged*", "it reads a cache in pages, which its runtime fills: export with a cache that is a tensor"),
    ("com.microsoft", "QOrdered*", _ONE_PROCESSOR),
    ("com.microsoft", "*WithOrder", _ONE_PROCESSOR),
    ("com.microsoft", "*BFP", _ONE_PROCESSOR),
    ("com.microsoft", "*Fp[48]*", _ONE_PROCESSOR),
    ("com.microsoft", "GemmFloat8", _ONE_PROCESSOR),
    ("com.microsoft", "MatMulFpQ4", _ONE_PROCESSOR),
    ("com.microsoft", "EPContext", "the file was compiled for an accelerator: use the model from before that"),
    ("com.microsoft", "Snpe", "the file was compiled for an accelerator: use the model from before that"),
    ("com.microsoft", "*NGramHashMapping", "compute the hashes of words in your application, and give the model their numbers"),
    ("com.microsoft", "DynamicTimeWarping", _LENGTH),
    ("com.microsoft", "BifurcationDetector", _LENGTH),
    ("com.microsoft", "AttnLSTM", "export it as `LSTM`, with its attention as products"),
    ("com.microsoft", "*", "it is ONNX Runtime's own: use the model from before its optimiser or quantiser, or export it again"),
    ("ai.onnx.contrib", "*", "it is a tokeniser or a picture decoder of onnxruntime-extensions: cut the model after it"),
    ("org.pytorch.aten", "*", "PyTorch wrote its own operator: export with `dynamo=True`, or compile the `.pt2` file"),
    ("org.pytorch._caffe2", "*", "PyTorch wrote an operator of Caffe2: export with `dynamo=True`, or compile the `.pt2` file"),
    ("mmdeploy", "*", "it is one of MMDeploy's: export with the plain ONNX backend, or cut the model before it"),
    ("*", "TRT*", "it is one of TensorRT's: export without TensorRT's plug-ins (`--end2end` off), and select boxes in your code"),
    ("*", "*TRT", "it is one of TensorRT's: export without TensorRT's plug-ins (`--end2end` off), and select boxes in your code"),
)


def tflite_hint(code: str) -> str:
    """For a custom operator of this name."""
    usual = "export the model with built-in operators only, or cut it before this one"
    return next((hint for pattern, hint in TFLITE if fnmatchcase(code, pattern)), usual)


def built_in_hint(op: str) -> str:
    """For an operator of TFLite's schema that is not supported."""
    return next((hint for pattern, hint in BUILT_IN if fnmatchcase(op, pattern)), "")


def onnx_hint(domain: str, op: str, usual: str) -> str:
    found = (hint for of, pattern, hint in ONNX if fnmatchcase(domain, of) and fnmatchcase(op, pattern))
    return next(found, usual)
