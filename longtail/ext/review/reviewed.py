"""A new version of a model that knows how much the scores of a reviewer count."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Int64

from longtail.ext.review.reviewer import Reviewer, ReviewError, attempted_scores, candidate_text
from longtail.ext.review.weights import ReviewGain, fit_review, held_out_gain
from longtail.models.bundle.bundle import Bundle
from longtail.models.errors import ConfigError
from longtail.models.fitted.review import MODEL, REVIEWER, FittedReview
from longtail.models.kinds.storage import read_parts
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.training.assessment.truth import truth_of
from longtail.training.assessment.untrained import LeftOut, find_trained_on
from longtail.training.calibration.scored_pairs import ScoredPairs
from longtail.training.data.dataset import Dataset
from longtail.training.data.splits import Split
from longtail.training.evaluation.by_frequency import Evaluation, evaluate
from longtail.training.evaluation.metrics import join_truth
from longtail.training.runtime.run_log import progress_bar

LEAST_DOCUMENTS = 50
_MOST_FAILED = 0.1
"""Share of the documents whose reviews may fail."""
_PARALLEL = 4
_ATTEMPTS = 3
TIMEOUT_S = 60.0
"""Longest review with all its attempts; slower ones are of no use to a service."""
_KS = (1, 3, 5, 10)


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A fitted review, and its figures.

    Attributes:
        review: What is stored.
        gain: On held-out halves.
        evaluation: Of the candidates in their order "before" and "after", each document held out.
        pairs: The candidates.
        num_failed: Documents that the reviewer failed on, which are left out.
        left_out: Documents that the model was trained on.
    """

    review: FittedReview
    gain: ReviewGain
    evaluation: Evaluation
    pairs: ScoredPairs
    num_failed: int
    left_out: LeftOut

    def check_gain(self) -> None:
        """Refuse a reviewer whose gain can't be told from chance, by ConfigError."""
        if not self.gain.is_significant:
            raise ConfigError(
                f"reviewer {self.review.reviewer!r} adds nothing that can be told from chance, so "
                "nothing is published; give more --documents, or another reviewer\n\n"
                f"{self.to_markdown()}"
            )

    def to_markdown(self) -> str:
        """Return the figures as a table, with a sentence about the gain."""
        verb = "raises" if self.gain.nats < 0 else "lowers"
        told = (
            f"{self.review.reviewer} scored the best {self.review.num_candidates} labels of "
            f"{self.review.num_documents:,} documents ({self.num_failed} more failed). Held out, "
            f"it {verb} the log-loss by {abs(self.gain.nats):.3f} nats a document (standard error "
            f"{self.gain.standard_error:.3f})."
        )
        table = self.evaluation.overall_table()
        return "\n\n".join(filter(None, [str(self.left_out), told, table]))


def find_review(
    bundle: Bundle,
    dataset: Dataset,
    split_name: str,
    reviewer: Reviewer,
    *,
    num_documents: int,
    num_candidates: int,
    scorer: str | None = None,
) -> Reviewed:
    """Let a reviewer score the candidates of some documents, and fit what its scores count.

    Args:
        bundle: The model.
        dataset: Its labels are matched by their ids.
        split_name: Its split.
        reviewer: Is closed at the end.
        num_documents: Documents that are reviewed, spread over the split.
        num_candidates: Labels of each, the best ones.
        scorer: None: the default one.
    """
    scorer = bundle.manifest.default_scorer if scorer is None else scorer
    bundle.manifest.check_asked(scorer, 1)
    left_out = find_trained_on([bundle], dataset, split_name)
    split, catalogue = left_out.view(dataset, split_name).split(split_name), bundle.catalogue
    truth, _ = truth_of(catalogue, dataset, split.scan().labels)
    last = truth.shape[0] - 1
    rows = np.unique(np.linspace(0, last, min(num_documents, last + 1)).astype(np.int64))
    if len(rows) < LEAST_DOCUMENTS:
        raise ConfigError(f"got {len(rows)} documents, expected at least {LEAST_DOCUMENTS}")
    k = min(num_candidates, len(catalogue))
    texts, ranking = best_candidates(bundle, split, rows, k, scorer)
    text_of = partial(candidate_text, with_keywords=reviewer.reads_keywords)
    candidates = [
        [text_of(catalogue[x]) for x in row if x != NO_LABEL] for row in ranking.labels.tolist()
    ]
    found = asyncio.run(_reviews(reviewer, texts, candidates))
    answered = [row for row, scores in enumerate(found) if scores is not None]
    truth = truth[rows[answered]]
    before = Ranking(ranking.labels[answered], ranking.scores[answered])
    is_there = before.labels != NO_LABEL
    reviewed = np.zeros(is_there.shape, dtype=np.float32)
    reviewed[is_there] = [score for scores in found if scores is not None for score in scores]
    is_true, weights = join_truth(before.labels, truth).is_hit, is_there.astype(np.float32)
    scores = {MODEL: before.scores, REVIEWER: reviewed}
    counts = catalogue.training_counts
    pairs = ScoredPairs(before.labels, is_true, is_there, weights, scores, counts[before.labels])
    review = fit_review(pairs, counts, scorer, reviewer.name)
    gain = held_out_gain(pairs, counts)
    order = np.argsort(-gain.log_odds, axis=1, kind="stable")
    after = Ranking(*(np.take_along_axis(x, order, 1) for x in (before.labels, before.scores)))
    evaluation = evaluate(
        {"before": before, "after": after}, truth, counts,
        bundle.manifest.training_document_count, [each for each in _KS if each <= k],
    )  # fmt: skip
    return Reviewed(review, gain, evaluation, pairs, len(rows) - len(answered), left_out)


def best_candidates(
    bundle: Bundle, split: Split, rows: Int64[np.ndarray, row], k: int, scorer: str
) -> tuple[list[str], Ranking]:
    """Return texts of a split as the model reads them, at rising rows, and their k best labels."""
    is_in = np.isin(np.arange(split.scan().labels.shape[0]), rows)
    texts = list(split.part(is_in).texts())
    predictor = Predictor(read_parts(bundle), default_scorer=scorer)
    ranking = predictor.rank(predictor.read(texts), RankingOptions(k=k, scorer=scorer))
    return list(map(predictor.cleaned, texts)), ranking


async def _reviews(
    reviewer: Reviewer, texts: Sequence[str], candidates: Sequence[list[str]]
) -> list[list[float] | None]:
    """Return the scores of each text; None where the reviewer failed, on at most a tenth."""
    parallel, num_failed = asyncio.Semaphore(_PARALLEL), 0

    async def review(text: str, own: list[str]) -> list[float] | None:
        nonlocal num_failed
        try:
            async with parallel, asyncio.timeout(TIMEOUT_S):
                return await attempted_scores(reviewer, text, own, _ATTEMPTS)
        except (ReviewError, TimeoutError) as error:
            num_failed += 1
            if num_failed <= _MOST_FAILED * len(texts):
                return None
            raise ConfigError(
                f"reviewer {reviewer.name!r} failed on {num_failed} of {len(texts)} documents, the "
                f"last time with: {str(error) or f'no scores within {TIMEOUT_S:g} s'}; expected at "
                f"most {_MOST_FAILED:.0%}"
            ) from error
        finally:
            bar.update()

    with progress_bar(total=len(texts), desc="review", unit="doc") as bar:
        tasks = [asyncio.create_task(x) for x in map(review, texts, candidates)]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # else they outlive the reviewer
            await reviewer.close()
