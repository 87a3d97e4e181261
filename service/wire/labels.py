"""What answers say about labels: why they were found, and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

import longtail.models.results
from longtail.models.fitted.label_figures import LABEL_FIGURES
from longtail.models.predict.predictor import Predictor
from longtail.service.schemas.base import ModelReference
from longtail.service.schemas.labels import (
    Keyword,
    LabelDetail,
    LabelQuality,
    LabelSummary,
    NearLabel,
    RelatedLabel,
    Share,
)
from longtail.service.schemas.predict import (
    BlendedScorer,
    FoundName,
    LabelExplanation,
    ScoreExplanation,
    SimilarDocument,
    TokenContribution,
    TokenExplanation,
)
from longtail.service.versions.serving import LoadedModel

MAX_NARROWER = 1000
"""Labels right below one that an answer about it names."""


def explanation_of(why: longtail.models.results.Explanation) -> LabelExplanation:
    """Return why a label was found."""
    return LabelExplanation(
        tokens=None if why.sparse is None else _tokens(why.sparse),
        keywords=_keywords(why.keywords),
        nearest=near_labels(why.nearest),
        training_count=why.training_count,
        scores=[
            ScoreExplanation(
                scorer=parts.scorer,
                score=parts.score,
                base=parts.base,
                correction=parts.correction,
                tail_dial=parts.tail_dial,
            )
            for parts in why.scores
        ],
        name=None if why.evidence.name is None else FoundName(**asdict(why.evidence.name)),
        documents=[
            SimilarDocument(id=each.document_id, similarity=each.similarity, share=each.share)
            for each in why.evidence.documents
        ],
        blend=[BlendedScorer(**asdict(each)) for each in why.evidence.blend],
    )


def summaries_of(
    predictor: Predictor, rows: Sequence[int], language: str | None = None
) -> list[LabelSummary]:
    """Return what a list says of labels.

    Args:
        predictor: The model.
        rows: Of the labels in its catalogue.
        language: Of the names; None, or one that a label has no name in: that of the model.
    """
    hierarchy = predictor.selector.hierarchy
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
    figures = LABEL_FIGURES.of(predictor)
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


def detail_of(
    model: LoadedModel, found: longtail.models.results.LabelDetails, language: str | None = None
) -> LabelDetail:
    """Return all that a model knows of a label, names in a language where there are any in it."""
    predictor = model.predictor
    hierarchy = predictor.selector.hierarchy

    def related(rows: Sequence[int]) -> list[RelatedLabel]:
        labels = summaries_of(predictor, rows, language)
        return [RelatedLabel(id=label.id, name=label.name) for label in labels]

    (summary,) = summaries_of(predictor, [found.index], language)
    return LabelDetail(
        **dict(summary),
        model=ModelReference(version=model.version, digest=model.digest),
        pseudo_description=found.label.pseudo_description,
        keywords=_keywords(found.keywords),
        nearest=near_labels(found.nearest),
        scorers=list(found.scorers),
        names=dict(found.label.names),
        alternative_names=list(found.label.alternative_names),
        notation=found.label.notation,
        broader=related(hierarchy.broader(found.index)),
        narrower=related(hierarchy.narrower(found.index)[:MAX_NARROWER]),
        replaced_by=list(found.label.replaced_by),
    )


def near_labels(labels: Sequence[longtail.models.results.NearLabel]) -> list[NearLabel]:
    """Return labels that are like another one."""
    return [NearLabel(id=each.id, name=each.name, similarity=each.similarity) for each in labels]


def _tokens(parts: longtail.models.results.SparseParts) -> TokenExplanation:
    return TokenExplanation(
        tokens=[
            TokenContribution(
                token=part.token, contribution=part.contribution, spans=list(part.spans)
            )
            for part in parts.tokens
        ],
        rest=parts.rest,
        bias=parts.bias,
    )


def _keywords(keywords: Sequence[longtail.models.results.Keyword]) -> list[Keyword]:
    return [Keyword(token=each.token, weight=each.weight) for each in keywords]
