"""Which scorers a blend is made of: those without which it ranks the dev split worse.

The likelihood that weights are fitted by looks at all labels, a ranking at the first few, so one
scorer more can make a blend better by the one and worse by the other. Scorers that do are left
out, which also saves their time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32, Float64, Int64
from joblib import cpu_count
from scipy.sparse import csr_array

from longtail.models.bundle.manifest import Calibration, RarityBlend
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.metrics import (
    RankedEvaluation,
    document_values_at,
    inverse_propensities,
    join_truth,
)
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.scorers.blending import DialledBlend, FittedBlend
from longtail.training.calibration.blends import fit_blend
from longtail.training.calibration.scored_pairs import ScoredPairs, spread_rows

logger = logging.getLogger(__name__)

CUT_OFF = 5
"""k of the measures; less where there are fewer labels."""
_NUM_FOLDS = 2
_MAX_DOCUMENTS = 2000


@dataclass(frozen=True, slots=True)
class DevRanking:
    """The dev split, to rank by blends.

    Attributes:
        pairs: Pairs of its documents.
        truth: Their labels.
        catalogue: With the training counts.
        propensity_weights: Inverse propensity of each label.
        unseen: Pairs of the same documents, scored as if their labels had no training document.
    """

    pairs: ScoredPairs
    truth: Float32[csr_array, "document label"]
    catalogue: LabelCatalogue
    propensity_weights: Float64[np.ndarray, label]
    unseen: ScoredPairs | None = None

    @classmethod
    def of(
        cls,
        pairs: ScoredPairs,
        truth: Float32[csr_array, "document label"],
        catalogue: LabelCatalogue,
        num_training_documents: int,
        unseen: ScoredPairs | None = None,
    ) -> DevRanking:
        """Return it with propensities for this number of training documents."""
        weights = inverse_propensities(catalogue.training_counts, num_training_documents)
        return cls(pairs, truth, catalogue, weights, unseen)

    def blend(
        self,
        members: Sequence[str],
        calibrations: Mapping[str, Calibration],
        rows: Int64[np.ndarray, row] | None = None,
    ) -> RarityBlend:
        """Return the blend of some scorers, fitted on some documents; None: on all."""
        pairs, unseen = self.pairs, self.unseen
        if rows is not None:
            pairs = pairs.of_documents(rows)
            unseen = None if unseen is None else unseen.of_documents(rows)
        counts = self.catalogue.training_counts
        return fit_blend(pairs, members, calibrations, counts, unseen=unseen)

    def thinned(self) -> DevRanking:
        """Return every second document, or third and so on, so that they are few enough.

        2,000 documents are enough to choose scorers by; more would only take longer.
        """
        rows = spread_rows(len(self.pairs.labels), _MAX_DOCUMENTS)
        unseen = None if self.unseen is None else self.unseen.of_documents(rows)
        pairs = self.pairs.of_documents(rows)
        return replace(self, pairs=pairs, truth=self.truth[rows], unseen=unseen)

    def choose(
        self, candidates: Sequence[str], calibrations: Mapping[str, Calibration]
    ) -> tuple[str, ...]:
        """Return the scorers that a blend is better with.

        One after the other, that one is left out without which nDCG@5 + PSP@5 is largest, as long
        as it is no smaller than with it. Each half of the documents is ranked by a blend that is
        fitted on the other half.
        """
        few = self.thinned()
        chosen = tuple(candidates)
        value = few._value(chosen, calibrations)
        while len(chosen) > 1:
            fewer = [tuple(x for x in chosen if x != name) for name in chosen]
            with ThreadPoolExecutor(cpu_count()) as threads:  # the fits share nothing
                values = list(threads.map(lambda some: few._value(some, calibrations), fewer))
            best = int(np.argmax(values))
            if values[best] < value:
                break
            logger.info(
                "blended without %s: nDCG@5 + PSP@5 on dev %.4f, with it %.4f",
                next(name for name in chosen if name not in fewer[best]), values[best], value,
            )  # fmt: skip
            chosen, value = fewer[best], values[best]
        return chosen

    def values(
        self, scores: Float32[np.ndarray, "document m"], measures: Sequence[str] = ("nDCG", "PSP")
    ) -> Float64[np.ndarray, document]:
        """Return the sum of measures at 5 of each document (see `document_values_at`).

        Args:
            scores: Scores of the pairs, by which the labels of a document are ranked.
            measures: Names among "P", "nDCG" and "PSP"; each is a fraction.
        """
        k = min(CUT_OFF, scores.shape[1])
        found = document_values_at(self.joined(scores, k), k, self.propensity_weights)
        summed: Float64[np.ndarray, document] = np.sum(
            [found[f"{x}@{k}"] for x in measures], axis=0
        )
        return summed

    def _value(self, members: Sequence[str], calibrations: Mapping[str, Calibration]) -> float:
        """Return nDCG@5 + PSP@5 of cross-fitted blends of some scorers."""
        return float(self.values(self.cross_fitted(members, calibrations)).mean())

    def cross_fitted(
        self,
        members: Sequence[str],
        calibrations: Mapping[str, Calibration],
        num_folds: int = _NUM_FOLDS,
    ) -> Float32[np.ndarray, "document m"]:
        """Return the scores of each fold's pairs by the blend fitted on the other folds."""
        folds = np.arange(len(self.pairs.labels)) % num_folds
        scores = np.full(self.pairs.labels.shape, -np.inf, dtype=np.float32)
        for fold in range(num_folds):
            others = np.flatnonzero(folds != fold)
            if self.pairs.is_true[others].any():
                blend = self.blend(members, calibrations, others)
                own = self.pairs.of_documents(np.flatnonzero(folds == fold))
                scores[folds == fold] = blended(blend, calibrations, own, self.catalogue)
        return scores

    def joined(self, scores: Float32[np.ndarray, "document m"], k: int) -> RankedEvaluation:
        """Return the best k labels of each document beside the truth."""
        places = self.best_places(scores, k)
        labels = np.take_along_axis(self.pairs.labels, places, axis=1)
        is_missing = np.isneginf(np.take_along_axis(scores, places, axis=1))
        is_missing |= ~np.take_along_axis(self.pairs.is_best, places, axis=1)
        labels[is_missing] = NO_LABEL
        return join_truth(labels, self.truth)

    def best_places(
        self, scores: Float32[np.ndarray, "document m"], k: int
    ) -> Int64[np.ndarray, "document k"]:
        """Return where the best k labels of each document stand among its pairs."""
        scores = np.where(self.pairs.is_best, scores, -np.inf)
        order = np.lexsort((self.pairs.labels, -scores), axis=1)[:, :k]
        return order.astype(np.int64)


def blended(
    fitted: RarityBlend,
    calibrations: Mapping[str, Calibration],
    pairs: ScoredPairs,
    catalogue: LabelCatalogue,
) -> Float32[np.ndarray, "document m"]:
    """Return the blended score of each pair, as it is ranked by."""
    of_members = [calibrations[name] for name in fitted.weights]
    blend = FittedBlend(fitted, of_members, catalogue.training_counts, catalogue.log_priors)
    scores = np.stack([pairs.scores[name] for name in fitted.weights])
    return DialledBlend.of(blend, 0.0).combine(scores, pairs.labels)
