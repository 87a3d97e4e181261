"""Types that several requests and answers share; problem documents (RFC 9457)."""

from __future__ import annotations

import re
from dataclasses import is_dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.json_schema import JsonSchemaMode
from pydantic_core import PydanticCustomError

from longtail.models.results import ANSWER

SURROGATE = re.compile("[\ud800-\udfff]")


def check_text(text: str) -> str:
    """Return a text that can be labelled, unchanged."""
    if not text.strip():
        raise PydanticCustomError("text_blank", "The text is empty or only white space")
    return check_characters(text)


def check_characters(text: str) -> str:
    """Return a text, blank or not, that has no characters that can't be used."""
    if "\x00" in text:
        raise PydanticCustomError("text_nul", "The text holds a NUL character; remove it")
    if SURROGATE.search(text):
        raise PydanticCustomError(
            "text_surrogate", "The text holds half of a surrogate pair; send valid Unicode"
        )
    return text


# The pattern only tells clients what `check_text` checks, whose answers are clearer.
_SOME_TEXT = r"^[^\x00]*[^\s\x00\x1c-\x1f\x85][^\x00]*$"
Text = Annotated[str, Field(json_schema_extra={"pattern": _SOME_TEXT}), AfterValidator(check_text)]
Title = Annotated[str, AfterValidator(check_characters)] | None


class Asked(BaseModel):
    """Base of what clients send: unknown fields and other types are refused."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )


class Answer(BaseModel):
    """Base of all answers: fields are described by their docstrings."""

    model_config = ANSWER


class ModelReference(Answer):
    """The model that answered."""

    version: int
    """Number of the version in the registry."""
    digest: str
    """Digest of the whole bundle: the same digest is the same model."""


def schemas_of(*models: type) -> dict[str, Any]:
    """Return the OpenAPI schemas of models, and of all that they are made of."""
    adapters: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
        (each.__name__, "serialization" if is_dataclass(each) else "validation", TypeAdapter(each))
        for each in models
    ]
    _, definitions = TypeAdapter.json_schemas(adapters, ref_template="#/components/schemas/{model}")
    schemas: dict[str, Any] = definitions["$defs"]
    return schemas


class ProblemDetail(Answer):
    """One thing that is wrong with a request."""

    pointer: str
    """JSON pointer into the body (RFC 6901), or the name of a parameter."""
    detail: str


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    type: str
    """URI of the kind of problem; programs should compare this, not the words."""
    title: str
    """The kind of problem in words."""
    status: int
    """The HTTP status."""
    detail: str
    """What was wrong this time, and what to do."""
    instance: str | None = None
    """Path of the request."""
    errors: list[ProblemDetail] | None = None
    """What is wrong with the body, up to a limit; only where the body was not valid."""
    error: str | None = None
    """The same as `detail`, where clients of the Open Inference Protocol look; only under `/v2`."""
