"""Blends and default scorer that heed what people said of labels, where dev does not object.

On the dev split of a corpus whose labels stand literally in the texts, names are enough, and a
blend that leaves the documents out of account loses nothing. Verdicts that contradict it can only
change its answers through the scorers that learned of the judged texts. So these texts join the
documents that the blend is fitted on, scored by the model that was trained on them, and the dev
split limits how much they count.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int64
from scipy.sparse import csr_array, vstack

from longtail.ext.learn.documents import matrix_of
from longtail.ext.learn.judged import FIRST, JudgedTexts, is_among
from longtail.models.bundle.manifest import Calibration, Followed, RarityBlend
from longtail.models.kinds.registry import KINDS, without_encoder
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.names import ENSEMBLE
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.scorers.calibration import probabilities_of
from longtail.training.calibration.blends import in_words
from longtail.training.calibration.ensemble import (
    Blending,
    calibrations_of,
    with_blends,
    without_idle,
)
from longtail.training.calibration.members import DevRanking, blended
from longtail.training.calibration.scored_pairs import ScoredPairs, rank_best, score_pairs
from longtail.training.calibration.thresholds import best_threshold
from longtail.training.data.chunks import chunks
from longtail.training.pipeline.dev_split import DefaultScorer, Lead, choose_default

logger = logging.getLogger(__name__)

_WEIGHTS = (1.0, 4.0, 16.0)
"""How many verdicts each one may count as."""


class _Trial(NamedTuple):
    """A blend, and what it is worth.

    Attributes:
        blend: The blend.
        followed: Verdicts on judged texts that it follows.
        values: nDCG@5 + PSP@5 of each dev document.
    """

    blend: RarityBlend
    followed: Followed
    values: Float64[np.ndarray, document]


@dataclass(frozen=True, slots=True)
class Heeding:
    """Judged texts, scored by a model that learned of them.

    Attributes:
        judged: The texts and the verdicts.
        pairs: Of these texts; only pairs with a verdict have a weight.
        truth: The accepted labels.
        catalogue: All labels of the model.
        num_training_documents: For the propensities.
        current: The default scorer so far.
    """

    judged: JudgedTexts
    pairs: ScoredPairs
    truth: Float32[csr_array, "text label"]
    catalogue: LabelCatalogue
    num_training_documents: int
    current: DefaultScorer

    @classmethod
    def of(
        cls,
        parts: ModelParts,
        judged: JudgedTexts,
        num_training_documents: int,
        current: DefaultScorer,
    ) -> Heeding:
        """Score the pairs of judged texts.

        Args:
            parts: The model, without blends.
            judged: At least one text.
            num_training_documents: For the propensities.
            current: The default scorer so far.
        """
        num_labels = len(parts.catalogue)
        both = np.hstack([judged.right, judged.wrong])
        named, right = (_matrix(each, num_labels) for each in (both, judged.right))
        predictor, found, start = Predictor(parts), [], 0
        for texts in chunks(judged.texts):
            batch, stop = predictor.read(texts), start + len(texts)
            ranked = rank_best(predictor, batch)
            found.append(score_pairs(predictor, batch, named[start:stop], start, ranked))
            start = stop
        pairs = ScoredPairs.joined(found)
        has_verdict, is_true = (is_among(pairs.labels, x) for x in (both, judged.right))
        pairs = replace(pairs, is_true=is_true, weights=has_verdict.astype(np.float32))
        return cls(judged, pairs, right, parts.catalogue, num_training_documents, current)

    def blending(self, dev: DevRanking, fitted: Blending) -> Blending:
        """Return a blending whose blends follow the most verdicts that dev allows.

        A blend stays where none follows more verdicts, and none is taken that ranks dev worse by
        more than the standard error. Scorers of a blend stay in it, and others may join it.

        Args:
            dev: The dev split, over the same labels.
            fitted: On it.
        """
        blends = {}
        for name, blend in fitted.blends.items():
            allowed = tuple(KINDS) if name == ENSEMBLE else without_encoder()
            members = [x for x in allowed if x in fitted.calibrations or x in blend.weights]
            blends[name] = self._heeded(dev, blend, members, fitted.calibrations)
            if blends[name] != blend:
                logger.info("%s heeds verdicts: %s", name, in_words(blends[name]))
        return fitted if blends == fitted.blends else with_blends(dev, fitted, blends)

    def default(self, dev: DevRanking, fitted: Blending, names: Sequence[str]) -> DefaultScorer:
        """Return the default scorer so far, or the blend where dev and verdicts contradict it."""
        current = self.current.name
        if current in fitted.blends or not fitted.blends or current not in names:
            return self.current
        joined, names = self._joined(dev, 1.0), (current, *fitted.blends)
        return choose_default(joined, fitted, names, where="dev and judged texts")

    def _heeded(
        self,
        dev: DevRanking,
        blend: RarityBlend,
        members: Sequence[str],
        calibrations: dict[str, Calibration],
    ) -> RarityBlend:
        start = self._tried(dev, blend, calibrations)
        best = start
        for other in self._others(dev, blend, members, calibrations):
            trial = self._tried(dev, other, calibrations)
            lead = Lead.of(start.values - trial.values, FIRST)
            logger.info(
                "%d of %d verdicts followed, %.4f of nDCG@5 + PSP@5 lost on dev (standard error "
                "%.4f): %s",
                trial.followed.verdicts, self.judged.said.verdicts, lead.mean, lead.error,
                in_words(other),
            )  # fmt: skip
            if lead.mean <= lead.error and trial.followed.verdicts > best.followed.verdicts:
                best = trial
        return best.blend

    def _others(
        self,
        dev: DevRanking,
        blend: RarityBlend,
        members: Sequence[str],
        calibrations: dict[str, Calibration],
    ) -> Iterator[RarityBlend]:
        """Give blends that are fitted on judged texts too, those nearest to the old one first.

        Yields:
            For each weight, one of the same scorers, and one of all that may be blended.
        """
        for weight in _WEIGHTS:
            joined = self._joined(dev, weight)
            for some in dict.fromkeys((tuple(sorted(blend.weights)), tuple(sorted(members)))):
                yield without_idle(joined.blend(some, calibrations))

    def _tried(
        self, dev: DevRanking, blend: RarityBlend, calibrations: dict[str, Calibration]
    ) -> _Trial:
        """Return how many verdicts a blend follows, and how well it ranks dev."""
        on_dev = blended(blend, calibrations, dev.pairs, dev.catalogue)
        pairs = replace(dev.pairs, scores={ENSEMBLE: on_dev})
        curve = calibrations_of(pairs)[
            ENSEMBLE
        ]  # it is there, else nothing could have been blended
        limit = best_threshold(pairs, ENSEMBLE, curve)
        scores = blended(blend, calibrations, self.pairs, self.catalogue)
        counts = self.catalogue.training_counts
        is_ranked = np.where(self.pairs.is_best, scores, -np.inf)
        places = np.argsort(-is_ranked, axis=1, kind="stable")[:, :FIRST]
        of_right, of_wrong = (
            probabilities_of(curve, self._at(scores, each), counts[each])
            for each in (self.judged.right, self.judged.wrong)
        )
        followed = self.judged.followed(
            np.take_along_axis(self.pairs.labels, places, axis=1),
            of_right,
            of_wrong,
            np.inf if limit is None else limit,
        )
        return _Trial(blend, followed, dev.values(on_dev))

    def _at(
        self, scores: Float32[np.ndarray, "text m"], labels: Int64[np.ndarray, "text n"]
    ) -> Float32[np.ndarray, "text n"]:
        """Return the scores of given labels, each of which is among the pairs."""
        is_here = self.pairs.labels[:, None, :] == labels[:, :, None]
        found = np.take_along_axis(scores, is_here.argmax(axis=2), axis=1)
        return np.where(labels == NO_LABEL, np.float32(-np.inf), found)

    def _joined(self, dev: DevRanking, weight: float) -> DevRanking:
        """Return the dev split and the judged texts, whose verdicts count so much."""
        own = replace(self.pairs, weights=self.pairs.weights * np.float32(weight))
        silent = replace(self.pairs, weights=np.zeros_like(self.pairs.weights))
        return DevRanking.of(
            ScoredPairs.joined([dev.pairs, own]),
            csr_array(vstack([dev.truth, self.truth], format="csr")),
            self.catalogue,
            self.num_training_documents,
            None if dev.unseen is None else ScoredPairs.joined([dev.unseen, silent]),
        )


def _matrix(
    labels: Int64[np.ndarray, "text m"], num_labels: int
) -> Float32[csr_array, "text label"]:
    rows = [frozenset(row[row != NO_LABEL].tolist()) for row in labels]
    return matrix_of(rows, num_labels)
