"""Labels that stand for those without training documents, so that a blend learns of such labels.

Where a dev split has hardly any label that no training document carries, nothing says what a name
that is found is worth for a label that was added later. Labels with a single training document are
nearest to them: each is looked at a second time, scored as if it had none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float32, Int64

from longtail.models.kinds.registry import KINDS
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.calibration.scored_pairs import ScoredPairs

_ENOUGH = 50
"""Right pairs of labels without training documents that say themselves what such labels are worth.
They do it better: on the demo's dev split, stand-ins beside them cost a point of R@10."""


def lacks_unseen_labels(pairs: ScoredPairs, training_counts: Int64[np.ndarray, label]) -> bool:
    """Return whether hardly any label without training documents is right in a split."""
    is_unseen = pairs.is_true & (training_counts[pairs.labels] == 0)
    return int(is_unseen.sum()) < _ENOUGH


def pairs_without_documents(
    pairs: ScoredPairs,
    batches: Sequence[TextBatch],
    training_counts: Int64[np.ndarray, label],
    parts: ModelParts,
) -> ScoredPairs | None:
    """Return the pairs of labels with one training document, scored as if they had none.

    `retrieval` and `hybrid` keep their scores: to hold labels out of the encoder, it would have to
    be trained again.

    Returns:
        None where there are none.
    """
    is_single = training_counts == 1
    is_kept = is_single[pairs.labels] & (pairs.labels != NO_LABEL) & (pairs.weights > 0)
    if not is_kept.any():
        return None
    labels, is_kept = _gathered(pairs.labels, is_kept)

    def taken(values: np.ndarray, filling: float) -> np.ndarray:
        return np.where(is_kept, np.take_along_axis(values, labels, axis=1), filling)

    of_labels = np.where(is_kept, np.take_along_axis(pairs.labels, labels, axis=1), NO_LABEL)
    scores = {}
    for name, known in pairs.scores.items():
        if name in KINDS and not KINDS[name].scores_new_labels:
            scores[name] = np.full(of_labels.shape, -np.inf, dtype=np.float32)
        elif name in parts.models:
            scores[name] = _blind_scores(name, parts, is_single, batches, of_labels)
        else:
            scores[name] = taken(known, -np.inf)
    return ScoredPairs(
        labels=of_labels,
        is_true=taken(pairs.is_true, 0.0).astype(np.bool_),
        is_best=taken(pairs.is_best, 0.0).astype(np.bool_),
        weights=taken(pairs.weights, 0.0).astype(np.float32),
        scores=scores,
        counts=np.zeros_like(of_labels),
    )


def _gathered(
    labels: Int64[np.ndarray, "document m"], is_kept: Bool[np.ndarray, "document m"]
) -> tuple[Int64[np.ndarray, "document n"], Bool[np.ndarray, "document n"]]:
    """Return the columns that are kept in each row, first, and which of these there are."""
    width = int(is_kept.sum(axis=1).max())
    columns = np.argsort(~is_kept, axis=1, kind="stable")[:, :width].astype(np.int64)
    assert columns.shape[0] == labels.shape[0]
    return columns, np.take_along_axis(is_kept, columns, axis=1)


def _blind_scores(
    name: str,
    parts: ModelParts,
    is_single: Bool[np.ndarray, label],
    batches: Sequence[TextBatch],
    labels: Int64[np.ndarray, "document m"],
) -> Float32[np.ndarray, "document m"]:
    """Return the scores of labels by a model that never saw one of these be right."""
    model = KINDS[name].without_documents(parts.models[name], is_single)
    blind = Predictor(replace(parts, dense=None, models={name: model}, blends={}), device="cpu")
    options, found, first = RankingOptions(scorer=name), [], 0
    for texts in (batch.texts for batch in batches):
        of_texts = labels[first : first + len(texts)]
        found.append(blind.score(blind.read(texts), of_texts, options))
        first += len(texts)
    return np.concatenate(found)
