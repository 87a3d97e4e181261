"""Scores of some (document, label) pairs of a split, chosen so that they stand for all of them.

Nearly all pairs are negatives of very low score, and there are too many to look at. Looked at are
the best labels by every scorer and the true ones, each for itself, and a uniform sample of the
others, each for as many as it was drawn from: sums over the pairs, weighted so, are unbiased
estimates of sums over all pairs, whatever the number of labels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.bundle.manifest import Calibration
from longtail.models.fitted.label_figures import LabelFigures
from longtail.models.names import ENSEMBLE, FAST
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL, Ranking, without_repeats
from longtail.models.scorers.calibration import probabilities_of

NUM_BEST = 64
"""Labels of every scorer that are looked at, a document."""
NUM_BEST_BLENDED = 10
"""Best labels of a blend; the best labels of its members have the others that it ranks high."""
NUM_SAMPLED = 128
"""Labels that are drawn from all, a document."""


@dataclass(frozen=True, slots=True)
class ScoredPairs:
    """Pairs of a split's documents and labels.

    Attributes:
        labels: Label indices; `NO_LABEL` where a document has fewer than others.
        is_true: Whether the document carries the label.
        is_best: Whether it is among the best by a scorer.
        weights: How many pairs it stands for; 0 at `NO_LABEL`.
        scores: By each scorer, with its own correction; -inf where it can't score the label.
        counts: Training documents of the labels.
    """

    labels: Int64[np.ndarray, "document m"]
    is_true: Bool[np.ndarray, "document m"]
    is_best: Bool[np.ndarray, "document m"]
    weights: Float32[np.ndarray, "document m"]
    scores: dict[str, Float32[np.ndarray, "document m"]]
    counts: Int64[np.ndarray, "document m"]

    @classmethod
    def joined(cls, parts: Sequence[ScoredPairs]) -> ScoredPairs:
        """Return the pairs of several groups of documents, in their order."""
        width = max(part.labels.shape[1] for part in parts)
        return cls(
            labels=_stacked([part.labels for part in parts], width, float(NO_LABEL)),
            is_true=_stacked([part.is_true for part in parts], width, 0.0),
            is_best=_stacked([part.is_best for part in parts], width, 0.0),
            weights=_stacked([part.weights for part in parts], width, 0.0),
            scores={
                name: _stacked([part.scores[name] for part in parts], width, -np.inf)
                for name in parts[0].scores
            },
            counts=_stacked([part.counts for part in parts], width, 0.0),
        )

    def of_documents(self, rows: Int64[np.ndarray, row]) -> ScoredPairs:
        """Return the pairs of some documents."""
        return ScoredPairs(
            labels=self.labels[rows],
            is_true=self.is_true[rows],
            is_best=self.is_best[rows],
            weights=self.weights[rows],
            scores={name: scores[rows] for name, scores in self.scores.items()},
            counts=self.counts[rows],
        )

    def of(
        self, scorer: str
    ) -> tuple[Float32[np.ndarray, pair], Bool[np.ndarray, pair], Float64[np.ndarray, pair]]:
        """Return scores, truth and weights of the pairs that a scorer can score."""
        is_scored = self.is_scored(scorer)
        weights = self.weights[is_scored].astype(np.float64)
        return self.scores[scorer][is_scored], self.is_true[is_scored], weights

    def is_scored(self, scorer: str) -> Bool[np.ndarray, "document m"]:
        """Return which pairs a scorer can score."""
        return (self.weights > 0) & ~np.isneginf(self.scores[scorer])

    def probabilities(
        self, scorer: str, calibration: Calibration
    ) -> Float64[np.ndarray, "document m"]:
        """Return the probabilities by a scorer, which has this calibration."""
        return probabilities_of(calibration, self.scores[scorer], self.counts)

    def count(
        self, scorer: str, calibration: Calibration, threshold: float, num_labels: int
    ) -> LabelFigures:
        """Count how often each label is right, and predicted with at least this probability."""
        is_predicted = self.probabilities(scorer, calibration) >= threshold
        is_counted = self.weights > 0
        marks = (self.is_true, is_predicted, self.is_true & is_predicted)
        return LabelFigures(
            *(np.bincount(self.labels[is_counted & x], minlength=num_labels) for x in marks)
        )


def spread_rows(num_documents: int, most: int) -> Int64[np.ndarray, row]:
    """Return every document, or every second, third and so on: at most `most` of them."""
    return np.arange(0, num_documents, max(1, -(-num_documents // most)), dtype=np.int64)


class Collector(ABC):
    """Keeps something of batches of documents that come along, in the order of their split."""

    def watch(self, batches: Iterable[TextBatch]) -> Iterator[TextBatch]:
        """Record each batch, then yield it.

        Yields:
            The batches, as they come.
        """
        for batch in batches:
            self._note(batch)
            yield batch

    @abstractmethod
    def _note(self, batch: TextBatch) -> None: ...


class PairCollector(Collector):
    """Scores pairs of the documents."""

    def __init__(self, predictor: Predictor, truth: Float32[csr_array, "document label"]) -> None:
        """Start empty."""
        self.scorers = predictor.scorers.names
        self._predictor = predictor
        self._truth = truth
        self._num_seen = 0
        self._parts: list[ScoredPairs] = []
        self._rankings: list[dict[str, Ranking]] = []

    def _note(self, batch: TextBatch) -> None:
        start, self._num_seen = self._num_seen, self._num_seen + len(batch.texts)
        truth = self._truth[start : self._num_seen]
        ranked = rank_best(self._predictor, batch)
        self._parts.append(score_pairs(self._predictor, batch, truth, start, ranked))
        self._rankings.append(ranked)

    @property
    def pairs(self) -> ScoredPairs:
        """Those of all documents so far; there must be some."""
        return ScoredPairs.joined(self._parts)

    @property
    def rankings(self) -> dict[str, Ranking]:
        """The best labels of all documents so far, by every scorer; there must be some."""
        names = self._rankings[0]
        return {name: Ranking.joined([each[name] for each in self._rankings]) for name in names}


def rank_best(predictor: Predictor, batch: TextBatch) -> dict[str, Ranking]:
    """Return the `NUM_BEST` best labels of documents, or all, by every scorer; of blends fewer."""
    found = {}
    for name in predictor.scorers.names:
        wanted = NUM_BEST_BLENDED if name in (ENSEMBLE, FAST) else NUM_BEST
        k = min(wanted, len(predictor.catalogue))
        found[name] = predictor.rank(batch, RankingOptions(k=k, scorer=name))
    return found


def score_pairs(
    predictor: Predictor,
    batch: TextBatch,
    truth: Float32[csr_array, "document label"],
    first_row: int,
    ranked: Mapping[str, Ranking],
) -> ScoredPairs:
    """Return pairs of some documents, scored by every scorer.

    Args:
        predictor: The model.
        batch: The documents.
        truth: Their labels.
        first_row: Number of the first document in its split; the sample of a document depends on
            its number alone, so it is the same for every model and batch.
        ranked: Result of `rank_best`.
    """
    num_labels = truth.shape[1]
    best = np.hstack([ranking.labels for ranking in ranked.values()])
    true_labels = np.split(truth.indices.astype(np.int64), truth.indptr[1:-1])
    rows = [
        _pairs_of(named, true, num_labels, np.random.default_rng(first_row + row))
        for row, (named, true) in enumerate(zip(best, true_labels, strict=True))
    ]
    width = max(len(labels) for labels, _ in rows)
    labels = _stacked([one[None] for one, _ in rows], width, float(NO_LABEL))
    weights = _stacked([one[None] for _, one in rows], width, 0.0)
    return ScoredPairs(
        labels=labels,
        is_true=_is_among(labels, true_labels),
        is_best=_is_among(labels, list(best)),
        weights=weights,
        scores=predictor.scorers.score_by_all(batch, labels),
        counts=predictor.catalogue.training_counts[labels],
    )


def score_given(
    predictor: Predictor,
    batches: Sequence[TextBatch],
    labels: Int64[np.ndarray, "document m"],
    scorer: str,
) -> Float32[np.ndarray, "document m"]:
    """Return one scorer's scores of given labels of documents; -inf of `NO_LABEL`."""
    found, start = [], 0
    for batch in batches:
        stop = start + len(batch.texts)
        found.append(predictor.score(batch, labels[start:stop], RankingOptions(scorer=scorer)))
        start = stop
    return np.concatenate(found)


def _pairs_of(
    best: Int64[np.ndarray, named],
    true: Int64[np.ndarray, true],
    num_labels: int,
    rng: np.random.Generator,
) -> tuple[Int64[np.ndarray, m], Float32[np.ndarray, m]]:
    """Return the labels of one document that are looked at, rising, and their weights."""
    named = without_repeats(np.concatenate([best, true])[None])[0]
    named = named[named != NO_LABEL]
    drawn = rng.choice(num_labels, min(NUM_SAMPLED, num_labels), replace=False, shuffle=False)
    others = np.setdiff1d(drawn, named)
    weight = (num_labels - len(named)) / max(1, len(others))
    labels = np.concatenate([named, others.astype(np.int64)])
    weights = np.concatenate([np.ones(len(named)), np.full(len(others), weight)])
    order = np.argsort(labels, kind="stable")
    return labels[order], weights[order].astype(np.float32)


def _is_among(
    labels: Int64[np.ndarray, "document m"], expected: Sequence[np.ndarray]
) -> Bool[np.ndarray, "document m"]:
    rows = zip(labels, expected, strict=True)
    is_among = np.stack([np.isin(row, some) for row, some in rows])
    found: Bool[np.ndarray, "document m"] = is_among & (labels != NO_LABEL)
    return found


def _stacked(parts: Sequence[np.ndarray], width: int, filling: float) -> np.ndarray:
    """Return the rows of all parts, filled up to one width."""
    return np.concatenate(
        [
            np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=filling)
            for part in parts
        ]
    )
