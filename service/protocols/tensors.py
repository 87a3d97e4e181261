"""Bodies of the Open Inference Protocol: JSON, and binary tensors after it.

Binary tensors (the protocol's extension `binary_tensor_data`) are little-endian and row-major; an
element of BYTES is its length in four bytes, and its bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from longtail.models.errors import RequestError
from longtail.models.files.validation import without_text
from longtail.service.engine.engine import EngineAnswer
from longtail.service.protocols.output_tensors import (
    _DATATYPES,
    _LENGTH,
    _WRITERS,
    InferAnswer,
    OutputTensor,
    Scalar,
    TensorMetadata,
)
from longtail.service.schemas.base import Listed, Options, WholeNumber, as_one_error
from longtail.service.web.json_body import parse_json_body
from longtail.service.web.problem_handlers import BodyError

BINARY_EXTENSION = "binary_tensor_data"
_TEXT_SHAPES = "[n] or [n, 1]"
_MAX_DIMENSIONS = 100
_MAX_PARAMETERS = 100
_ONE_ERROR = as_one_error("parameter", "Give a string, a number, or true or false")


class InputTensor(BaseModel):
    """An input: its values, or where they lie behind the JSON."""

    model_config = ConfigDict(strict=True, frozen=True, use_attribute_docstrings=True)

    name: str
    """`text`."""
    shape: list[WholeNumber] = Field(max_length=_MAX_DIMENSIONS, fail_fast=True)
    """[n], or [n, 1]."""
    datatype: str
    """`BYTES`."""
    parameters: dict[str, Any] = Field({}, max_length=_MAX_PARAMETERS)
    """`binary_data_size`: bytes of the values, behind the JSON."""
    data: Listed[Any] | None = None
    """The values, flat or as nested as the shape says."""


class RequestedOutput(BaseModel):
    """A requested output."""

    model_config = ConfigDict(strict=True, frozen=True, use_attribute_docstrings=True)

    name: str
    parameters: dict[str, Any] = Field({}, max_length=_MAX_PARAMETERS)
    """`binary_data`: whether it shall lie behind the JSON."""


class InferRequest(BaseModel):
    """Texts, and what to answer about them."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
        json_schema_extra={
            "examples": [
                {
                    "inputs": [
                        {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["Olive oil"]}
                    ],
                    "parameters": {"k": 3},
                }
            ]
        },
    )

    id: str | None = Field(None, max_length=1000)
    """Given back."""
    parameters: dict[str, Annotated[Scalar, _ONE_ERROR]] = Field({}, max_length=_MAX_PARAMETERS)
    inputs: list[InputTensor] = Field(min_length=1, max_length=1)
    outputs: (
        Annotated[list[RequestedOutput], Field(max_length=_MAX_PARAMETERS, fail_fast=True)] | None
    ) = None
    """All where absent."""

    def requested_outputs(self) -> dict[str, bool]:
        """Return the names of the requested outputs, and whether they shall be binary.

        Raises:
            RequestError: There is no such output, or it can't be given in the way requested.
        """
        default = self.parameters.get("binary_data_output", False)
        if not isinstance(default, bool):
            raise RequestError(
                f"parameter 'binary_data_output' is {default!r}; expected true or false"
            )
        if not self.outputs:
            return dict.fromkeys(_WRITERS, default)
        requested = {}
        for output in self.outputs:
            if output.name not in _WRITERS:
                raise RequestError(
                    f"there is no output {output.name[:100]!r}; expected some of "
                    f"{', '.join(_WRITERS)}"
                )
            unknown = sorted(set(output.parameters) - {"binary_data"})
            if unknown:
                raise RequestError(
                    f"output {output.name!r} has the parameter {unknown[0][:100]!r}; "
                    "expected none but 'binary_data'"
                )
            requested[output.name] = bool(output.parameters.get("binary_data", default))
        return requested


@dataclass(frozen=True, slots=True)
class WireBody:
    """A body to be sent.

    Attributes:
        content: All of it.
        header_bytes: Length of the JSON where binary tensors follow it, else None.
    """

    content: bytes
    header_bytes: int | None


def parse_request(body: bytes, header_length: str | None) -> tuple[InferRequest, bytes]:
    """Return the request and the binary tensors behind it.

    Args:
        body: All of it.
        header_length: Bytes of its JSON, as the header says; None: all.

    Raises:
        BodyError: The header is wrong.
        RequestValidationError: As `parse_json_body` raises it; also its other errors.
    """
    end = len(body)
    if header_length is not None:
        is_number = header_length.isascii() and header_length.isdigit() and len(header_length) < 10
        if not is_number or int(header_length) > len(body):
            raise BodyError(
                400,
                f"The header 'Inference-Header-Content-Length' is {header_length[:40]!r}; expected "
                f"the bytes of the body's JSON, at most {len(body)}",
            )
        end = int(header_length)
    return parse_json_body(body[:end], InferRequest), body[end:]


def texts_of(asked: InferRequest, binary: bytes, max_texts: int) -> list[str]:
    """Return the texts of a request.

    Args:
        asked: The request.
        binary: The bytes behind its JSON.
        max_texts: Most texts that are read from them.

    Raises:
        RequestError: There are more texts, the input is not `text`, or its shape, type and values
            do not agree.
    """
    (tensor,) = asked.inputs
    if tensor.name != INPUT.name or tensor.datatype != INPUT.datatype:
        raise RequestError(
            f"the input is {tensor.name[:100]!r} of {tensor.datatype[:40]!r}; expected "
            f"{INPUT.name!r} of {INPUT.datatype!r}"
        )
    unknown = sorted(set(tensor.parameters) - {"binary_data_size"})
    if unknown:
        raise RequestError(
            f"input 'text' has the parameter {unknown[0][:100]!r}; expected none but "
            "'binary_data_size'; options stand among the parameters of the request"
        )
    size = tensor.parameters.get("binary_data_size")
    if (size is None) == (tensor.data is None):
        raise RequestError(
            "input 'text' wants its values either in 'data' or behind the JSON, with the parameter "
            "'binary_data_size'"
        )
    if size is None:
        texts = _texts_in_json(tensor.data or [])
    else:
        texts = _texts_in_binary(binary, size, max_texts)
    if size is None and binary:
        raise RequestError(f"{len(binary)} bytes follow the JSON that no input claims")
    if not 1 <= len(tensor.shape) <= 2 or tensor.shape[1:] not in ([], [1]):
        raise RequestError(f"input 'text' has shape {tensor.shape[:9]}; expected {_TEXT_SHAPES}")
    if tensor.shape[0] != len(texts):
        raise RequestError(
            f"input 'text' has shape {tensor.shape} and {len(texts)} values; expected as many as "
            "the shape says"
        )
    return texts


def options_of(asked: InferRequest) -> dict[str, Any]:
    """Return the parameters of a request as `/v1/predict` names them.

    Raises:
        RequestError: There is no such parameter.
    """
    options: dict[str, Any] = {}
    for name, value in asked.parameters.items():
        if name not in _PARAMETERS:
            raise RequestError(
                f"parameter {name[:100]!r} is not known; expected some of {', '.join(_PARAMETERS)}"
            )
        if name == "timeout":
            if isinstance(value, str | bool):
                raise RequestError(f"parameter 'timeout' is {value!r}; expected microseconds")
            options["timeout_s"] = _seconds_of(value)
        elif name != "binary_data_output":
            options[name] = value
    return options


def _seconds_of(microseconds: float) -> float:
    """Return a time in seconds.

    Raises:
        RequestError: It is a whole number beyond all floats.
    """
    try:
        return microseconds / 1e6
    except OverflowError:
        raise RequestError(
            "parameter 'timeout' has more than 300 digits; expected microseconds, at most a day"
        ) from None


def _compact(content: InferAnswer | OutputTensor) -> str:
    return json.dumps(content.model_dump(exclude_none=True), separators=(",", ":"))


def write_answer(
    model: str, asked: InferRequest, answer: EngineAnswer, requested: Mapping[str, bool], k: int
) -> WireBody:
    """Return the answer to a request.

    Args:
        model: Its name.
        asked: The request.
        answer: What the engine found.
        requested: Names of outputs, and whether each shall be binary.
        k: Labels a text, which is the width of the outputs.
    """
    outputs, binary = [], []
    for name, is_binary in requested.items():
        info, values_of = _WRITERS[name]
        values = values_of(answer, k)
        shape = [len(answer.predictions), k][: len(info.shape)]
        parameters, data = None, None
        if is_binary:
            binary.append(_DATATYPES[info.datatype](values))
            parameters = {"binary_data_size": len(binary[-1])}
        else:
            data = list(values)
        output = OutputTensor(
            name=name, datatype=info.datatype, shape=shape, parameters=parameters, data=data
        )
        outputs.append(_compact(output))  # writing JSON stops all threads, so one at a time
    header = InferAnswer(
        model_name=model,
        model_version=str(answer.model.version),
        id=asked.id,
        parameters={
            "scorer": answer.scorer,
            "correction": answer.predictions[0].correction,
            "digest": answer.model.digest,
        },
        outputs=[],
    )
    before, end = _compact(header).rsplit("[]", 1)
    content = f"{before}[{','.join(outputs)}]{end}".encode()
    return WireBody(b"".join((content, *binary)), len(content) if any(requested.values()) else None)


def _texts_in_json(data: Sequence[Any]) -> list[str]:
    flat: list[Any] = []
    for item in data:
        flat.extend(item if isinstance(item, list) else [item])
    for index, item in enumerate(flat):
        if not isinstance(item, str):
            raise RequestError(
                f"value {index} of input 'text' is {without_text(item)}; expected a string"
            )
    return flat


def _texts_in_binary(binary: bytes, size: object, max_texts: int) -> list[str]:
    if not isinstance(size, int) or isinstance(size, bool) or size != len(binary):
        raise RequestError(
            f"input 'text' has 'binary_data_size' {str(size)[:40]}, and {len(binary)} bytes follow "
            "the JSON; expected as many"
        )
    texts: list[str] = []
    start = 0
    while start < len(binary):
        if len(texts) == max_texts:
            raise RequestError(
                f"input 'text' has more than {max_texts} texts; send the others in further requests"
            )
        begin = start + _LENGTH.size
        end = begin + _LENGTH.unpack_from(binary, start)[0] if begin <= len(binary) else math.inf
        if end > len(binary):
            raise RequestError(
                f"value {len(texts)} of input 'text' ends behind the body; expected its length in "
                "four bytes, little-endian, and so many bytes"
            )
        start = int(end)
        try:
            texts.append(binary[begin:start].decode())
        except UnicodeDecodeError as error:
            raise RequestError(
                f"value {len(texts)} of input 'text' is not in UTF-8; send it in UTF-8"
            ) from error
    return texts


INPUT = TensorMetadata(name="text", datatype="BYTES", shape=[-1])
_NO_PARAMETERS = {"include", "exclude", "under", "explain", "version"}
"""Lists, which parameters can't be; what tensors don't say; and what is in the path."""
_PARAMETERS = (
    *(name for name in Options.model_fields if name not in _NO_PARAMETERS),
    "timeout",
    "binary_data_output",
)
