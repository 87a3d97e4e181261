"""Names of labels in the language that a query asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from longtail.models.errors import RequestError
from longtail.models.labels.catalogue import LabelCatalogue

P = TypeVar("P", bound=Any)
"""A `longtail.models.results.Prediction`, or an object with its fields."""


def check_language(catalogue: LabelCatalogue, language: str | None) -> None:
    """Refuse a language in which no label has a name."""
    if language is None or language in catalogue.languages:
        return
    known = ", ".join(catalogue.languages)
    told = f"it has them in {known}" if known else "its label file names no languages"
    raise RequestError(f"language: this version has no names in {language!r}; {told}")


def in_language(prediction: P, catalogue: LabelCatalogue, language: str | None) -> P:
    """Return a prediction with the names of its labels in a language, where labels have one in it.

    Args:
        prediction: The prediction.
        catalogue: The labels of its model.
        language: One of the catalogue's; None: the names stay.
    """
    if language is None:
        return prediction
    named = (
        replace(label, name=catalogue[label.index].names.get(language, label.name))
        for label in prediction.labels
    )
    return replace(prediction, labels=tuple(named))
