"""Answers about labels and stored sets of labels."""

from __future__ import annotations

from pydantic import ConfigDict, FiniteFloat
from pydantic.config import JsonDict

from longtail.models.results import Keyword, NearLabel
from longtail.service.schemas.base import Answer, ModelReference


class Share(Answer):
    """A share with Wilson's 95 % interval."""

    share: FiniteFloat
    lower: FiniteFloat
    upper: FiniteFloat


class LabelQuality(Answer):
    """How good a label is on the documents that the probabilities were calibrated on.

    It is predicted for a document where its probability by the default scorer is at least the
    threshold of that scorer.
    """

    carried: int
    """Documents that carry the label."""
    predicted: int
    """Documents that it is predicted for."""
    right: int
    """Documents that carry it and that it is predicted for."""
    precision: Share | None
    """Right of predicted ones; null where there are none."""
    recall: Share | None
    """Right ones of the documents that carry it; null where there are none."""


class LabelSummary(Answer):
    """A label of the catalogue."""

    id: str
    name: str
    description: str
    """A text about the label that its publisher gave; may be empty."""
    training_count: int
    """Number of training documents that carry it."""
    narrower_count: int
    """Number of labels right below it in the vocabulary."""
    scheme: list[str]
    """Names of the schemes that it belongs to, for `schemes` of a request."""
    retired: bool
    """Whether a change of the vocabulary has taken it out of use: no scorer answers it any more."""
    quality: LabelQuality | None
    """How good it is; null where the model was not calibrated on documents."""


class RelatedLabel(Answer):
    """A label right above or below another one in the vocabulary."""

    id: str
    name: str


_MODEL_EXAMPLE: JsonDict = {
    "version": 1,
    "digest": "75ae5e8ced3129e3939d64899df9a8341fa0ce83482e9482a3d28021f793a8a0",
}
_LABEL_EXAMPLE: JsonDict = {
    "id": "1264",
    "name": "olive oil",
    "description": "",
    "training_count": 25,
    "narrower_count": 0,
    "scheme": ["topic"],
    "retired": False,
    "quality": {
        "carried": 6,
        "predicted": 5,
        "right": 4,
        "precision": {"share": 0.8, "lower": 0.376, "upper": 0.964},
        "recall": {"share": 0.667, "lower": 0.3, "upper": 0.903},
    },
}


class LabelList(Answer):
    """The labels that a query finds."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"model": _MODEL_EXAMPLE, "total": 1, "labels": [_LABEL_EXAMPLE]}]
        }
    )

    model: ModelReference
    total: int
    """Number of labels found in all."""
    labels: list[LabelSummary]
    """The requested page of them, the best first."""


class LabelDetail(LabelSummary):
    """All that is known of a label."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                _LABEL_EXAMPLE
                | {
                    "model": _MODEL_EXAMPLE,
                    "pseudo_description": "olive oil. olive oil virgin",
                    "keywords": [{"token": "olive", "weight": 2.25}],
                    "nearest": [{"id": "2136", "name": "olive", "similarity": 0.75}],
                    "scorers": ["retrieval", "classifier", "sparse"],
                    "names": {"en": "olive oil", "fi": "oliiviöljy"},
                    "alternative_names": [],
                    "notation": "",
                    "broader": [{"id": "5360", "name": "vegetable oil"}],
                    "narrower": [],
                    "replaced_by": [],
                }
            ]
        }
    )

    model: ModelReference
    pseudo_description: str
    """Name, description and keywords, as the label encoder read them; may be empty."""
    keywords: tuple[Keyword, ...]
    """Tokens with a high weight for the label in the sparse model, the highest first."""
    nearest: tuple[NearLabel, ...]
    """The most similar labels, the nearest first."""
    scorers: list[str]
    """The scorers that can score it."""
    names: dict[str, str]
    """Its names by language, where the vocabulary gives them."""
    alternative_names: list[str]
    """Other names, as the model reads them."""
    notation: str
    """Its code in a classification; may be empty."""
    broader: list[RelatedLabel]
    """The labels right above it in the vocabulary."""
    narrower: list[RelatedLabel]
    """The labels right below it: the first 1,000."""
    replaced_by: list[str]
    """Ids of the labels that are to be used instead of a retired one."""


class LabelSetSummary(Answer):
    """A stored set of labels."""

    name: str
    label_count: int
    """Number of its ids; a model version may lack some of these labels."""


class LabelSetList(Answer):
    """The stored sets of labels."""

    label_sets: list[LabelSetSummary]
    """In order of name."""
