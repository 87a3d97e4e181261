"""Fitting what documents of dev are like, and what log-odds say of shorter texts: documents, cut.

A piece keeps the labels of its document: the probability is that a document with such a piece has
the label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float32, Float64
from scipy.sparse import csr_array

from longtail.models.bundle.manifest import Calibration
from longtail.models.fitted.familiar_range import FAMILIAR_RANGE, FamiliarRange, ShortTexts
from longtail.models.predict.predictor import Predictor
from longtail.models.scorers.calibration import by_rarity, log_odds_of
from longtail.training.calibration.ensemble import Blending
from longtail.training.calibration.fit import rounded
from longtail.training.calibration.minimum import logistic_regression
from longtail.training.calibration.scored_pairs import (
    ScoredPairs,
    rank_best,
    score_pairs,
    spread_rows,
)
from longtail.training.fitted.fitting import PartFitting, RankedDevDocuments

MOST_CUT = 500
"""Documents; each length is read and ranked once more."""
_SHORTEST = 2
"""Words of the shortest texts; each next length has twice as many."""
_LEAST_TRUE = 50
"""True pairs without which a length has no line of its own."""
_LEAST_FACTOR = 0.05


def fit_short_texts(
    predictor: Predictor,
    texts: Sequence[str],
    truth: Float32[csr_array, "document label"],
    least_known_words: int,
) -> dict[str, ShortTexts]:
    """Return how the log-odds of each calibrated scorer change in short texts; none: they don't.

    Args:
        predictor: With calibrations.
        texts: Documents that the model was not trained on.
        truth: Their labels.
        least_known_words: Known words of a document; texts with as many stay as they are.
    """
    knots: list[int] = []
    calibrations = predictor.parts.calibrations
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name in calibrations}
    length = _SHORTEST
    while length < least_known_words:
        batch = predictor.read(cut(texts, length))
        pairs = score_pairs(predictor, batch, truth, 0, rank_best(predictor, batch))
        found = _lines(pairs, calibrations)
        known = int(np.median(batch.word_counts[:, 1]))
        length *= 2
        if not found or known <= (knots or [0])[-1] or known >= least_known_words:
            continue
        knots.append(known)
        for name, line in found.items():
            lines[name].append(line)
    if not knots:
        return {}
    return {
        name: ShortTexts(
            known_words=(*knots, least_known_words),
            shifts=(*(shift for shift, _ in own), 0.0),
            factors=(*(factor for _, factor in own), 1.0),
        )
        for name, own in lines.items()
    }


def _lines(
    pairs: ScoredPairs, calibrations: Mapping[str, Calibration]
) -> dict[str, tuple[float, float]]:
    """Return each scorer's line; none where one has too few true pairs."""
    found = {}
    for name, calibration in calibrations.items():
        scores = pairs.scores[name]
        is_used = pairs.is_best & pairs.is_scored(name)
        is_true = pairs.is_true[is_used]
        if int(is_true.sum()) < _LEAST_TRUE:
            return {}
        log_odds = log_odds_of(calibration, scores[is_used])
        terms = np.stack([np.zeros_like(log_odds), np.ones_like(log_odds), log_odds])
        counts = np.broadcast_to(pairs.counts[is_used], terms.shape)
        found[name] = _line(by_rarity(calibration, terms, counts), is_true)
    return found


def cut(texts: Sequence[str], num_words: int) -> list[str]:
    """Return the first words of every second text, as titles are; of the others, any neighbours."""
    rng, found = np.random.default_rng(num_words), []
    for number, text in enumerate(texts):
        last = max(0, len(text.split()) - num_words)
        start = int(rng.integers(last + 1)) if number % 2 else 0
        rest = text.split(None, start)[-1]
        behind = "".join(rest.split(None, num_words)[num_words:])
        found.append(rest[: len(rest) - len(behind)].rstrip())
    return found


def _line(
    terms: Float64[np.ndarray, "3 pair"], is_true: Bool[np.ndarray, pair]
) -> tuple[float, float]:
    """Return the shift and the factor of log-odds g by which truth is most likely.

    Args:
        terms: The log-odds by rarity where g is 0, where it is 1, and where it is as it is.
        is_true: Whether the labels are right.
    """
    offset, *columns = terms[0], terms[1] - terms[0], terms[2] - terms[0]
    start, least = np.array([0.0, 1.0]), np.array([-np.inf, _LEAST_FACTOR])
    shift, factor = logistic_regression(
        np.column_stack(columns), is_true, start, least, offset=offset
    )
    return rounded(shift), rounded(factor)


class FamiliarRangeFitting(PartFitting[FamiliarRange | None]):
    """Fits the bounds of documents, and the probabilities of shorter texts."""

    part = FAMILIAR_RANGE

    def fit(
        self, dev: RankedDevDocuments, blending: Blending, default: str
    ) -> FamiliarRange | None:
        """Return what the documents are like; None: there are too few."""
        del default
        batches = dev.batches()
        found = FamiliarRange.of_documents(
            [each for batch in batches for each in batch.familiarities()]
        )
        if found is None:
            return None
        predictor = dev.predictor.with_blending(blending.calibrations, blending.blends)
        texts = [text for batch in batches for text in batch.texts]
        rows = spread_rows(len(texts), MOST_CUT)
        short = fit_short_texts(
            predictor, [texts[row] for row in rows], dev.truth[rows], found.least_known_words
        )  # fmt: skip
        return replace(found, short_texts=short)
