"""Requests about texts: one or several, lines of a batch; with the options of all fitted parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from longtail.models.fitted.registry import request_options
from longtail.models.options import CoreOptions, Listed, WholeNumber, as_one_error
from longtail.models.parts.texts import joined_text
from longtail.service.schemas.base import Text, Title, schemas_of
from longtail.service.schemas.predict import BatchEnd, BatchError, BatchResult

if TYPE_CHECKING:
    Options = CoreOptions
else:
    Options = request_options()


class Titled(Options):
    """What to answer about a text that may have a title."""

    title: Title = None
    """Title of `text`. Both are labelled as one text, the title, a line feed, and `text`: what an
    explanation quotes is there, and feedback on it must name that text."""


class PredictRequest(Titled):
    """One text or several, and what to answer about each."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["text"]},
                {"required": ["texts"], "not": {"required": ["title"]}},
            ],
            "examples": [
                {"text": "Imports of olive oil from third countries", "k": 5},
                {
                    "texts": ["Imports of olive oil", "Fishing quotas"],
                    "k": 3,
                    "scorer": "sparse",
                    "tail_dial": 0.5,
                    "explain": True,
                },
            ],
        },
    )

    text: Text = Field("", validate_default=False)
    """The text to label; give either this or `texts`."""
    texts: Listed[Text] = Field(default_factory=list, min_length=1)
    """Texts to label, answered in this order; give either this or `text`."""
    timeout_s: float | None = Field(None, ge=0.001, le=86400, allow_inf_nan=False)
    """Seconds after which the answer is no longer needed, at least 0.001; the service's own limit
    where absent or longer."""

    @model_validator(mode="after")
    def _one_of_text_and_texts(self) -> Self:
        if len({"text", "texts"} & self.model_fields_set) != 1:
            raise PydanticCustomError("text_or_texts", "Give exactly one of 'text' and 'texts'")
        if self.texts and "title" in self.model_fields_set:
            raise PydanticCustomError(
                "title_of_texts",
                "Give 'title' with 'text' only; each of 'texts' begins with its own",
            )
        return self

    @property
    def all_texts(self) -> tuple[str, ...]:
        """The texts, of either field, a title joined."""
        return tuple(self.texts) or (joined_text(self.title, self.text),)


_ONE_ERROR = as_one_error(
    "line_id", "Give the id as a string of at most 1000 characters or a number"
)


class BatchOptions(Options):
    """Defaults for the lines of a batch, from the query."""

    model_config = ConfigDict(strict=False)  # a query has strings only


class BatchLine(Titled):
    """One line of a batch: a text, and what to answer about it."""

    text: Text
    """The text to label."""
    id: Annotated[Annotated[str, Field(max_length=1000)] | WholeNumber | None, _ONE_ERROR] = None
    """Returned with the answer to this line."""

    @property
    def whole_text(self) -> str:
        """The text, its title joined."""
        return joined_text(self.title, self.text)


def batch_schemas() -> dict[str, Any]:
    """Return the OpenAPI schemas of the lines of a batch, which no route refers to."""
    return schemas_of(BatchLine, BatchResult, BatchError, BatchEnd)
