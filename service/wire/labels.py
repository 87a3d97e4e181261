"""What answers say about labels: why they were found, and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import models.results
from models.labels.catalogue import Label
from service.schemas.base import ModelReference
from service.schemas.labels import Keyword, LabelDetail, LabelSummary, NearLabel
from service.schemas.predict import (
    BlendedScorer,
    FoundName,
    LabelExplanation,
    ScoreExplanation,
    SimilarDocument,
    TokenContribution,
    TokenExplanation,
)
from service.versions.serving import LoadedModel


def explanation_of(why: models.results.Explanation) -> LabelExplanation:
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


def summary_of(label: Label) -> LabelSummary:
    """Return what a list says of a label."""
    return LabelSummary(
        id=label.id,
        name=label.name,
        description=label.description,
        training_count=label.training_count,
    )


def detail_of(model: LoadedModel, found: models.results.LabelDetails) -> LabelDetail:
    """Return all that a model knows of a label."""
    return LabelDetail(
        **dict(summary_of(found.label)),
        model=ModelReference(version=model.version, digest=model.digest),
        pseudo_description=found.label.pseudo_description,
        keywords=_keywords(found.keywords),
        nearest=near_labels(found.nearest),
        scorers=list(found.scorers),
    )


def near_labels(labels: Sequence[models.results.NearLabel]) -> list[NearLabel]:
    """Return labels that are like another one."""
    return [NearLabel(id=each.id, name=each.name, similarity=each.similarity) for each in labels]


def _tokens(parts: models.results.SparseParts) -> TokenExplanation:
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


def _keywords(keywords: Sequence[models.results.Keyword]) -> list[Keyword]:
    return [Keyword(token=each.token, weight=each.weight) for each in keywords]
