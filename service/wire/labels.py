"""What answers say about the labels of the catalogue."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from longtail.models.explain import LabelDetails
from longtail.models.fitted.label_figures import LABEL_FIGURES
from longtail.models.predict.predictor import Predictor
from longtail.service.schemas.base import ModelReference
from longtail.service.schemas.labels import (
    LabelDetail,
    LabelQuality,
    LabelSummary,
    RelatedLabel,
    Share,
)
from longtail.service.versions.serving import ServedModel

MAX_NARROWER = 1000
"""Labels right below one that an answer about it names."""


def summaries_of(
    predictor: Predictor, rows: Sequence[int], language: str | None = None
) -> list[LabelSummary]:
    """Return what a list says of labels.

    Args:
        predictor: The model.
        rows: Of the labels in its catalogue.
        language: Of the names; None, or one that a label has no name in: that of the model.
    """
    hierarchy = predictor.scorers.selector.hierarchy
    labels = [predictor.catalogue[row] for row in rows]
    return [
        LabelSummary(
            id=label.id,
            name=label.names.get(language or "", label.name),
            description=label.description,
            training_count=label.training_count,
            narrower_count=len(hierarchy.narrower(row)),
            retired=label.is_retired,
            quality=quality,
        )
        for row, label, quality in zip(rows, labels, _qualities(predictor, rows), strict=True)
    ]


def _qualities(predictor: Predictor, rows: Sequence[int]) -> list[LabelQuality | None]:
    figures = LABEL_FIGURES.of(predictor.parts)
    if figures is None:
        return [None] * len(rows)
    found = figures.of_labels(np.array(rows, dtype=np.int64))
    shares = found.shares()
    columns = (
        found.num_true, found.num_predicted, found.num_right, shares["precision"], shares["recall"],
    )  # fmt: skip
    return [
        LabelQuality(
            carried=carried, predicted=predicted, right=right,
            precision=_share(precision), recall=_share(recall),
        )
        for carried, predicted, right, precision, recall in zip(
            *(each.tolist() for each in columns), strict=True
        )
    ]  # fmt: skip


def _share(bounded: Sequence[float]) -> Share | None:
    share, lower, upper = bounded
    return None if share != share else Share(share=share, lower=lower, upper=upper)


def detail_of(model: ServedModel, found: LabelDetails, language: str | None = None) -> LabelDetail:
    """Return all that a model knows of a label, names in a language where there are any in it."""
    predictor = model.predictor
    hierarchy = predictor.scorers.selector.hierarchy

    def related(rows: Sequence[int]) -> list[RelatedLabel]:
        labels = summaries_of(predictor, rows, language)
        return [RelatedLabel(id=label.id, name=label.name) for label in labels]

    (summary,) = summaries_of(predictor, [found.index], language)
    return LabelDetail(
        **dict(summary),
        model=ModelReference(version=model.version, digest=model.digest),
        pseudo_description=found.label.pseudo_description,
        keywords=found.keywords,
        nearest=found.nearest,
        scorers=list(found.scorers),
        names=dict(found.label.names),
        alternative_names=list(found.label.alternative_names),
        notation=found.label.notation,
        broader=related(hierarchy.broader(found.index)),
        narrower=related(hierarchy.narrower(found.index)[:MAX_NARROWER]),
        replaced_by=list(found.label.replaced_by),
    )
