"""Bodies of the Open Inference Protocol: JSON, and binary tensors after it.

Binary tensors (the protocol's extension `binary_tensor_data`) are little-endian and row-major; an
element of BYTES is its length in four bytes, and its bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from longtail.models.errors import RequestError
from longtail.models.options import Listed, WholeNumber
from longtail.models.results import UNLIKE_TRAINING, Prediction
from longtail.service.engine.engine import EngineAnswer
from longtail.service.http.json_body import parse_json_body
from longtail.service.http.problem_handlers import BodyError
from longtail.service.schemas.base import Answer, Asked
from longtail.service.schemas.requests import Options

NO_SCORE = float(np.finfo(np.float32).min)
"""Fills scores where a text has fewer labels than asked for: JSON has no infinity."""
NO_PROBABILITY = -1.0
_LENGTH = struct.Struct("<I")


class InputParameters(Asked):
    """Where the values of an input are; options of the request have parameters of their own."""

    binary_data_size: int | None = None
    """Bytes of the values, behind the JSON."""


class InputTensor(Asked):
    """An input: its values, or their position after the JSON."""

    name: Literal["text"]
    shape: list[WholeNumber] = Field(min_length=1, max_length=2)
    """[n], or [n, 1]."""
    datatype: Literal["BYTES"]
    parameters: InputParameters = InputParameters()
    data: Listed[Any] | None = None
    """The values, flat or as nested as the shape says."""


class OutputParameters(Asked):
    """How an output is given."""

    binary_data: bool | None = None
    """Whether it is binary, after the JSON; the default is `binary_data_output`."""


class RequestedOutput(Asked):
    """A requested output."""

    name: str
    parameters: OutputParameters = OutputParameters()


class InferParameters(Options):
    """The options of `/v1/predict` but `explain` and `version`, and those of the protocol."""

    explain: Literal[False] = Field(False, exclude=True)
    """Tensors have no room for explanations."""
    version: None = Field(None, exclude=True)
    """The version is in the path."""
    timeout: float | None = Field(None, ge=1000, le=86400e6, exclude=True, allow_inf_nan=False)
    """Microseconds after which the answer is no longer needed."""
    binary_data_output: bool = Field(False, exclude=True)
    """Whether outputs without `binary_data` are binary, after the JSON."""


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
    parameters: InferParameters = InferParameters()
    inputs: list[InputTensor] = Field(min_length=1, max_length=1)
    outputs: Annotated[list[RequestedOutput], Field(max_length=100, fail_fast=True)] | None = None
    """All where absent."""

    def requested_outputs(self) -> dict[str, bool]:
        """Return the names of the requested outputs, and whether they shall be binary."""
        default = self.parameters.binary_data_output
        if not self.outputs:
            return dict.fromkeys(_OUTPUTS, default)
        for output in self.outputs:
            if output.name not in _OUTPUTS:
                raise RequestError(
                    f"there is no output {output.name[:100]!r}; expected some of "
                    f"{', '.join(_OUTPUTS)}"
                )
        asked = {output.name: output.parameters.binary_data for output in self.outputs}
        return {name: default if binary is None else binary for name, binary in asked.items()}


class TensorMetadata(Answer):
    """A tensor that goes in or comes out."""

    name: str
    datatype: str
    shape: list[int]
    """-1 where it depends on the request."""


class OutputTensor(Answer):
    """An output: its values, or the number of their bytes after the JSON."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, int] | None = None
    data: list[Any] | None = None


class InferAnswer(Answer):
    """The labels of texts, as tensors."""

    model_name: str
    model_version: str
    id: str | None = None
    parameters: dict[str, str]
    """The scorer and the correction that made the scores, and the model's digest."""
    outputs: list[OutputTensor]


class _Output(NamedTuple):
    """How an output is made.

    Attributes:
        datatype: The protocol's datatype.
        values_of: Its value for a text; a list of those of the labels, if there is a filler.
        filler: Stands in for labels that a text lacks; None: the output has one value a text.
    """

    datatype: str
    values_of: Callable[[Prediction], Any]
    filler: Any = None


def _unreliable(prediction: Prediction) -> list[bool]:
    named = {each for warning in prediction.warnings for each in warning.label_ids}
    return [label.id in named for label in prediction.labels]


def _probabilities(prediction: Prediction) -> list[float]:
    probabilities = [label.probability for label in prediction.labels]
    return _float32(
        [NO_PROBABILITY if probability is None else probability for probability in probabilities]
    )


def _float32(values: Sequence[float]) -> list[float]:
    rounded: list[float] = np.asarray(values, dtype=np.float32).tolist()
    return rounded


_OUTPUTS = {
    "label_ids": _Output("BYTES", lambda found: [label.id for label in found.labels], ""),
    "label_names": _Output("BYTES", lambda found: [label.name for label in found.labels], ""),
    "scores": _Output(
        "FP32", lambda found: _float32([label.score for label in found.labels]), NO_SCORE
    ),
    "probabilities": _Output("FP32", _probabilities, NO_PROBABILITY),
    "unreliable": _Output("BOOL", _unreliable, filler=False),
    "unlike_training": _Output(
        "BOOL", lambda found: any(each.code == UNLIKE_TRAINING for each in found.warnings)
    ),
    "num_labels": _Output("INT32", lambda found: len(found.labels)),
    "num_tokens": _Output("INT32", lambda found: found.num_tokens),
    "num_text_tokens": _Output("INT32", lambda found: found.num_text_tokens),
    "known_tokens": _Output("INT32", lambda found: found.known_tokens),
    "truncated": _Output("BOOL", lambda found: found.truncated),
    "exact": _Output("BOOL", lambda found: found.exact),
}
INPUT = TensorMetadata(name="text", datatype="BYTES", shape=[-1])
OUTPUTS = [
    TensorMetadata(
        name=name, datatype=output.datatype, shape=[-1] if output.filler is None else [-1, -1]
    )
    for name, output in _OUTPUTS.items()
]
_DTYPES = {"FP32": "<f4", "INT32": "<i4", "BOOL": "?"}


def parse_request(body: bytes, header_length: str | None) -> tuple[InferRequest, bytes]:
    """Return the request and the binary tensors behind it.

    Args:
        body: All of it.
        header_length: Bytes of its JSON, as the header says; None: all.
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


def texts_of(asked: InferRequest, binary: bytes, max_texts: int) -> list[Any]:
    """Return the texts of a request; those in its JSON may yet be of any type.

    Args:
        asked: The request.
        binary: The bytes behind its JSON.
        max_texts: Most texts that are read from them.
    """
    (tensor,) = asked.inputs
    size = tensor.parameters.binary_data_size
    if (size is None) == (tensor.data is None) or len(binary) != (size or 0):
        raise RequestError(
            f"input 'text' has {'no values' if tensor.data is None else 'values'} in 'data', "
            f"'binary_data_size' {str(size)[:40]}, and {len(binary)} bytes follow the JSON; "
            "expected its values either in 'data', or in as many bytes as 'binary_data_size' says"
        )
    texts: list[Any] = []
    if tensor.data is None:
        texts = _texts_in_binary(binary, max_texts)
    else:
        for item in tensor.data:
            texts.extend(item if isinstance(item, list) else [item])
    if tensor.shape not in ([len(texts)], [len(texts), 1]):
        raise RequestError(
            f"input 'text' has shape {tensor.shape} and {len(texts)} values; expected [n] or "
            "[n, 1], and n values"
        )
    return texts


def write_answer(
    model: str, asked: InferRequest, answer: EngineAnswer, requested: Mapping[str, bool], k: int
) -> tuple[bytes, int | None]:
    """Return the body of the answer, and the length of its JSON where binary tensors follow.

    Args:
        model: Its name.
        asked: The request.
        answer: The engine's answer.
        requested: Names of outputs, and whether each shall be binary.
        k: Labels a text, which is the width of the outputs.
    """
    outputs, binary = [], []
    for name, is_binary in requested.items():
        output = _OUTPUTS[name]
        values, width = _values(output, answer.predictions, k)
        written: dict[str, Any] = {"data": values}
        if is_binary:
            binary.append(_packed(output.datatype, values))
            written = {"parameters": {"binary_data_size": len(binary[-1])}}
        shape = [len(answer.predictions), *width]
        tensor = OutputTensor(name=name, datatype=output.datatype, shape=shape, **written)
        # Writing JSON stops all threads, so one output at a time.
        outputs.append(tensor.model_dump_json(exclude_none=True))
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
    before, end = header.model_dump_json(exclude_none=True).rsplit("[]", 1)
    content = f"{before}[{','.join(outputs)}]{end}".encode()
    return b"".join((content, *binary)), len(content) if any(requested.values()) else None


def _values(
    output: _Output, predictions: Sequence[Prediction], k: int
) -> tuple[list[Any], list[int]]:
    """Return the values of an output row by row, and its shape without the first axis."""
    rows = [output.values_of(each) for each in predictions]
    if output.filler is None:
        return rows, []
    return [value for row in rows for value in row + [output.filler] * (k - len(row))], [k]


def _packed(datatype: str, values: Sequence[Any]) -> bytes:
    if datatype != "BYTES":
        return np.asarray(values, dtype=_DTYPES[datatype]).tobytes()
    encoded = [value.encode() for value in values]
    return b"".join(_LENGTH.pack(len(value)) + value for value in encoded)


def _texts_in_binary(binary: bytes, max_texts: int) -> list[str]:
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
                "four bytes, little-endian, and as many bytes"
            )
        start = int(end)
        try:
            texts.append(binary[begin:start].decode())
        except UnicodeDecodeError as error:
            raise RequestError(
                f"value {len(texts)} of input 'text' is not in UTF-8; send it in UTF-8"
            ) from error
    return texts
