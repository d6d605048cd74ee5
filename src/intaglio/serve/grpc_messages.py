"""The messages of the protocol's gRPC form, made from a table: names, numbers and types of fields are those of the protocol.

Nothing is generated, so that any protobuf will do that can be installed."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"

# message: {field: (number, type)}; a type with [] is repeated, {} a map from texts, and a message is named
_TENSOR = {"name": (1, "string"), "datatype": (2, "string"), "shape": (3, "int64[]")}
_OF_MODEL = {"name": (1, "string"), "version": (2, "string")}
MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "ServerLiveRequest": {},
    "ServerLiveResponse": {"live": (1, "bool")},
    "ServerReadyRequest": {},
    "ServerReadyResponse": {"ready": (1, "bool")},
    "ModelReadyRequest": _OF_MODEL,
    "ModelReadyResponse": {"ready": (1, "bool")},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {"name": (1, "string"), "version": (2, "string"), "extensions": (3, "string[]")},
    "ModelMetadataRequest": _OF_MODEL,
    "TensorMetadata": _TENSOR,
    "ModelMetadataResponse": {
        "name": (1, "string"), "versions": (2, "string[]"), "platform": (3, "string"), "inputs": (4, "TensorMetadata[]"),
        "outputs": (5, "TensorMetadata[]"),
    },
    "InferParameter": {
        "bool_param": (1, "bool"), "int64_param": (2, "int64"), "string_param": (3, "string"), "double_param": (4, "double"),
        "uint64_param": (5, "uint64"),
    },
    "InferTensorContents": {
        "bool_contents": (1, "bool[]"), "int_contents": (2, "int32[]"), "int64_contents": (3, "int64[]"),
        "uint_contents": (4, "uint32[]"), "uint64_contents": (5, "uint64[]"), "fp32_contents": (6, "float[]"),
        "fp64_contents": (7, "double[]"), "bytes_contents": (8, "bytes[]"),
    },
    "InferInputTensor": {**_TENSOR, "parameters": (4, "InferParameter{}"), "contents": (5, "InferTensorContents")},
    "InferRequestedOutputTensor": {"name": (1, "string"), "parameters": (2, "InferParameter{}")},
    "InferOutputTensor": {**_TENSOR, "parameters": (4, "InferParameter{}"), "contents": (5, "InferTensorContents")},
    "ModelInferRequest": {
        "model_name": (1, "string"), "model_version": (2, "string"), "id": (3, "string"), "parameters": (4, "InferParameter{}"),
        "inputs": (5, "InferInputTensor[]"), "outputs": (6, "InferRequestedOutputTensor[]"), "raw_input_contents": (7, "bytes[]"),
    },
    "ModelInferResponse": {
        "model_name": (1, "string"), "model_version": (2, "string"), "id": (3, "string"), "parameters": (4, "InferParameter{}"),
        "outputs": (5, "InferOutputTensor[]"), "raw_output_contents": (6, "bytes[]"),
    },
    "RepositoryIndexRequest": {"repository_name": (1, "string"), "ready": (2, "bool")},
    "ModelIndex": {"name": (1, "string"), "version": (2, "string"), "state": (3, "string"), "reason": (4, "string")},
    "RepositoryIndexResponse": {"models": (1, "ModelIndex[]")},
    "ModelRepositoryParameter": {
        "bool_param": (1, "bool"), "int64_param": (2, "int64"), "string_param": (3, "string"), "bytes_param": (4, "bytes"),
    },
    "RepositoryModelLoadRequest": {
        "repository_name": (1, "string"), "model_name": (2, "string"), "parameters": (3, "ModelRepositoryParameter{}"),
    },
    "RepositoryModelLoadResponse": {},
    "ModelConfigRequest": _OF_MODEL,
    "ModelInput": {"name": (1, "string"), "data_type": (2, "int32"), "dims": (4, "int64[]")},  # an enumeration is an int32
    "ModelOutput": {"name": (1, "string"), "data_type": (2, "int32"), "dims": (3, "int64[]")},
    "ModelConfig": {
        "name": (1, "string"), "platform": (2, "string"), "max_batch_size": (4, "int32"), "input": (5, "ModelInput[]"),
        "output": (6, "ModelOutput[]"), "backend": (17, "string"),
    },
    "ModelConfigResponse": {"config": (1, "ModelConfig")},
    "ModelStatisticsRequest": _OF_MODEL,
    "StatisticDuration": {"count": (1, "uint64"), "ns": (2, "uint64")},
    "InferStatistics": {
        "success": (1, "StatisticDuration"), "fail": (2, "StatisticDuration"), "queue": (3, "StatisticDuration"),
        "compute_input": (4, "StatisticDuration"), "compute_infer": (5, "StatisticDuration"),
        "compute_output": (6, "StatisticDuration"),
    },
    "ModelStatistics": {
        "name": (1, "string"), "version": (2, "string"), "last_inference": (3, "uint64"), "inference_count": (4, "uint64"),
        "execution_count": (5, "uint64"), "inference_stats": (6, "InferStatistics"),
    },
    "ModelStatisticsResponse": {"model_stats": (1, "ModelStatistics[]")},
}  # fmt: skip
ONE_OF = {"InferParameter": "parameter_choice", "ModelRepositoryParameter": "parameter_choice"}
# Of Triton's model configuration.
TYPES = (
    "INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "STRING",
    "BF16",
)  # fmt: skip
_FIELD = descriptor_pb2.FieldDescriptorProto
_PLAIN = {
    "bool": _FIELD.TYPE_BOOL, "int32": _FIELD.TYPE_INT32, "int64": _FIELD.TYPE_INT64, "uint32": _FIELD.TYPE_UINT32,
    "uint64": _FIELD.TYPE_UINT64, "float": _FIELD.TYPE_FLOAT, "double": _FIELD.TYPE_DOUBLE, "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
}  # fmt: skip


def _made() -> dict[str, Any]:
    """In a pool of its own: the same names may be in the common one, of a client in this process."""
    file = descriptor_pb2.FileDescriptorProto(name="intaglio/inference.proto", package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        if name in ONE_OF:
            message.oneof_decl.add(name=ONE_OF[name])
        for field, (number, kind) in fields.items():
            _add(message, name, field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES}


def _add(message: Any, owner: str, field: str, number: int, kind: str) -> None:
    plain = kind.rstrip("[]{}")
    label = _FIELD.LABEL_REPEATED if kind != plain else _FIELD.LABEL_OPTIONAL
    if kind.endswith("{}"):
        entry = message.nested_type.add(name=f"{field.title()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
        _add(entry, owner, "value", 2, plain)
        plain = f"{owner}.{entry.name}"
    made = message.field.add(name=field, number=number, label=label, type=_PLAIN.get(plain, _FIELD.TYPE_MESSAGE))
    if plain not in _PLAIN:
        made.type_name = f".{PACKAGE}.{plain}"
    if owner in ONE_OF and message.name == owner:
        made.oneof_index = 0


CLASSES = _made()

__all__ = ["CLASSES", "SERVICE", "TYPES"]
