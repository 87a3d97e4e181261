"""What answers say about labels: why they were found, and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import longtail.models.results
from longtail.models.labels.catalogue import Label
from longtail.service.schemas.base import ModelReference
from longtail.service.schemas.labels import (
    Keyword,
    LabelDetail,
    LabelSummary,
    NearLabel,
    RelatedLabel,
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


def summary_of(label: Label, *, num_narrower: int = 0, language: str | None = None) -> LabelSummary:
    """Return what a list says of a label.

    Args:
        label: The label.
        num_narrower: Labels right below it.
        language: Of its name; None, or one that it has no name in: that of the model.
    """
    return LabelSummary(
        id=label.id,
        name=label.names.get(language or "", label.name),
        description=label.description,
        training_count=label.training_count,
        narrower_count=num_narrower,
        retired=label.is_retired,
    )


def detail_of(
    model: LoadedModel, found: longtail.models.results.LabelDetails, language: str | None = None
) -> LabelDetail:
    """Return all that a model knows of a label, names in a language where there are any in it."""
    hierarchy = model.predictor.selector.hierarchy
    narrower = hierarchy.narrower(found.index)

    def related(rows: Sequence[int]) -> list[RelatedLabel]:
        labels = (summary_of(model.predictor.catalogue[row], language=language) for row in rows)
        return [RelatedLabel(id=label.id, name=label.name) for label in labels]

    summary = summary_of(found.label, num_narrower=len(narrower), language=language)
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
        narrower=related(narrower[:MAX_NARROWER]),
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
