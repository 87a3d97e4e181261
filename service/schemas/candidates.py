"""The labels of a text as a JSON schema, from which a language model chooses."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from longtail.models.results import Prediction
from longtail.service.schemas.base import Answer


class CandidateSchema(Answer):
    """A named JSON schema for structured output."""

    model_config = ConfigDict(validate_by_name=True)

    name: Literal["labels"] = "labels"
    description: str
    """The model version that found them."""
    strict: Literal[True] = True
    """Nothing but the schema may be answered."""
    content: dict[str, Any] = Field(alias="schema")
    """Of an object with `labels`, a list of ids. `enum` has the ids, best first; `description` has
    the name of each on a line of its own. Without candidates the list must be empty."""


def schema_of(prediction: Prediction, version: int) -> CandidateSchema:
    """Return the schema of the labels that a model version found for a text."""
    items: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "maxItems": 0}
    if prediction.labels:
        names = "\n".join(f"{each.id}: {each.name}" for each in prediction.labels)
        own = {"type": "string", "enum": [each.id for each in prediction.labels]}
        described = f"Ids of the labels that fit the text:\n{names}"
        items = {"type": "array", "items": own, "description": described}
    content = {
        "type": "object",
        "properties": {"labels": items},
        "required": ["labels"],
        "additionalProperties": False,
    }
    description = f"Labels by version {version} of the model"
    return CandidateSchema(description=description, content=content)
