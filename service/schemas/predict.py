"""The requests and answers of `/v1/predict`, as the OpenAPI document publishes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    TypeAdapter,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from longtail.models.names import AimName
from longtail.models.results import Prediction
from longtail.service.schemas.base import Answer, Listed, ModelReference, Options, Text


class PredictRequest(Options):
    """One text or several, and what to answer about each."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["text"]}, {"required": ["texts"]}],
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

    review: bool | None = None
    """Whether the best labels of each text are sent to the reviewer of this service (a language
    model or a cross-encoder), whose scores then count beside the model's; absent: as the operator
    has set it, false: never. Not together with `aim`, `tail_dial`, `correction`, `explain` or
    `schemes`."""

    @model_validator(mode="after")
    def _review_of_plain_scores(self) -> Self:
        if self.review and not self.can_be_reviewed:
            raise PydanticCustomError(
                "review",
                "Leave out 'aim', 'tail_dial', 'correction', 'explain', 'schemes', or 'review'",
            )
        return self

    @property
    def can_be_reviewed(self) -> bool:
        """Whether the request has no option that a review does not support."""
        is_other = self.tail_dial > 0 or self.aim is not None or self.correction is not None
        return not (is_other or self.explain or self.schemes)

    @model_validator(mode="after")
    def _one_of_text_and_texts(self) -> Self:
        if len({"text", "texts"} & self.model_fields_set) != 1:
            raise PydanticCustomError("text_or_texts", "Give exactly one of 'text' and 'texts'")
        return self

    @property
    def all_texts(self) -> tuple[str, ...]:
        """The texts, of either field."""
        return tuple(self.texts) or (self.text,)


@dataclass(frozen=True, slots=True, repr=False)
class TextResult(Prediction):
    """The labels of one text."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON schema, with the descriptions of inherited fields."""
        shown = handler(schema)
        fields = handler.resolve_ref_schema(shown)["properties"]
        inherited = TypeAdapter(Prediction).json_schema(mode="serialization")["properties"]
        for name, field in inherited.items():
            fields[name].setdefault("description", field["description"])
        return shown


class PredictResponse(Answer):
    """The labels of every text of a request."""

    model: ModelReference
    scorer: str
    correction: Literal["none", "prior", "tree"]
    """What was added to the scores."""
    tail_dial: float
    aim: AimName | None = None
    """That of the request; absent where it had none."""
    results: list[TextResult]
    """One for each text, in the order of the request."""
