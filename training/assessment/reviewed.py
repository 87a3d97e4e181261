"""A new version of a model that knows how much the scores of a reviewer count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from longtail.models.bundle.bundle import Bundle
from longtail.models.errors import ConfigError
from longtail.models.kinds.storage import read_parts
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.review.fitted import MODEL, REVIEWER, FittedReview
from longtail.models.review.reviewer import Reviewer, ReviewError, attempted_scores, candidate_text
from longtail.training.assessment.truth import truth_of
from longtail.training.assessment.untrained import LeftOut, find_trained_on
from longtail.training.calibration.reviews import ReviewGain, fit_review, held_out_gain
from longtail.training.calibration.scored_pairs import ScoredPairs
from longtail.training.data.dataset import Dataset
from longtail.training.evaluation.by_frequency import FREQUENCY_BINS
from longtail.training.evaluation.metrics import join_truth
from longtail.training.evaluation.tables import markdown_table
from longtail.training.runtime.progress import progress_bar

LEAST_DOCUMENTS = 50
_MOST_FAILED = 0.1
"""Share of the documents whose reviews may fail."""
_PARALLEL = 4
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A fitted review, and its figures.

    Attributes:
        review: What is stored.
        gain: On held-out halves.
        pairs: The candidates.
        counts: Training documents of each label.
        num_failed: Documents that the reviewer failed on, which are left out.
        left_out: Documents that the model was trained on.
    """

    review: FittedReview
    gain: ReviewGain
    pairs: ScoredPairs
    counts: Int64[np.ndarray, label]
    num_failed: int
    left_out: LeftOut

    def check_gain(self) -> None:
        """Refuse a reviewer that adds nothing to the model.

        Raises:
            ConfigError: Its gain can't be told from chance.
        """
        if not self.gain.is_significant:
            raise ConfigError(
                f"reviewer {self.review.reviewer!r} adds nothing that can be told from chance, so "
                "nothing is published; give more --documents, or another reviewer\n\n"
                f"{self.to_markdown()}"
            )

    def shares(self) -> dict[str, tuple[float, float]]:
        """Return shares of right labels before and after, each document held out."""
        order = np.argsort(-self.gain.log_odds, axis=1, kind="stable")
        before = (self.pairs.is_true, self.counts[self.pairs.labels])
        after = _measured(*(np.take_along_axis(x, order, 1) for x in before))
        return {name: (value, after[name]) for name, value in _measured(*before).items()}

    def to_markdown(self) -> str:
        """Return the figures as a table, with a sentence about the gain."""
        rows = [
            [name, f"{100 * before:.1f}", f"{100 * after:.1f}"]
            for name, (before, after) in self.shares().items()
        ]
        told = (
            f"{self.review.reviewer} scored the best {self.review.num_candidates} labels of "
            f"{self.review.num_documents:,} documents ({self.num_failed} more failed). Held out, "
            f"it lowers the log-loss by {self.gain.nats:.3f} nats a document (standard error "
            f"{self.gain.standard_error:.3f})."
        )
        table = markdown_table(["%", "before", "after"], rows)
        return "\n\n".join(filter(None, [str(self.left_out), told, table]))


def _measured(
    is_true: Bool[np.ndarray, "document candidate"], counts: Int64[np.ndarray, "document candidate"]
) -> dict[str, float]:
    found = {"P@1": float(is_true[:, 0].mean()), "P@5": float(is_true[:, :5].mean())}
    for name, (first, last) in FREQUENCY_BINS.items():
        is_own = is_true & (counts >= first) & (counts <= (np.inf if last is None else last))
        if total := int(is_own.sum()):
            found[f"right candidates among the first 5, {name}"] = is_own[:, :5].sum() / total
    return found


def find_review(
    bundle: Bundle,
    dataset: Dataset,
    split_name: str,
    reviewer: Reviewer,
    *,
    num_documents: int,
    num_candidates: int,
    scorer: str | None = None,
    timeout_s: float = 60.0,
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
        timeout_s: Seconds that one review may take.

    Raises:
        ConfigError: There is no such scorer, too few documents, or the reviewer fails on more than
            a tenth of them.
        DataError: The split is missing, has broken lines, or was trained on.
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
    texts = list(split.part(np.isin(np.arange(last + 1), rows)).texts())
    predictor = Predictor(read_parts(bundle), default_scorer=scorer)
    k = min(num_candidates, len(catalogue))
    ranking = predictor.rank(predictor.read(texts), RankingOptions(k=k, scorer=scorer))
    is_there = ranking.labels != NO_LABEL
    candidates = [
        [candidate_text(catalogue[x]) for x in row if x != NO_LABEL]
        for row in ranking.labels.tolist()
    ]
    found = asyncio.run(_reviews(reviewer, texts, candidates, timeout_s))
    reviewed = np.zeros(ranking.labels.shape, dtype=np.float32)
    for row, given in enumerate(found):
        reviewed[row, : len(given or ())] = given or ()
    is_true = join_truth(ranking.labels, truth[rows]).is_hit
    weights, own = is_there.astype(np.float32), np.where(is_there, ranking.scores, -np.inf)
    scores = {MODEL: own.astype(np.float32), REVIEWER: reviewed}
    pairs = ScoredPairs(ranking.labels, is_true, is_there, weights, scores)
    pairs = pairs.of_documents(np.flatnonzero([each is not None for each in found]))
    review = fit_review(pairs, catalogue.training_counts, scorer, reviewer.name)
    gain = held_out_gain(pairs, catalogue.training_counts)
    num_failed = len(rows) - len(pairs.labels)
    return Reviewed(review, gain, pairs, catalogue.training_counts, num_failed, left_out)


async def _reviews(
    reviewer: Reviewer, texts: Sequence[str], candidates: Sequence[list[str]], timeout_s: float
) -> list[list[float] | None]:
    """Return the scores of each text; None where the reviewer failed.

    Raises:
        ConfigError: It failed on more than a tenth of the texts; the others are not asked about.
    """
    parallel = asyncio.Semaphore(_PARALLEL)
    failures: list[str] = []

    async def review(text: str, own: list[str], done: Callable[[], object]) -> list[float] | None:
        async with parallel:
            if len(failures) > _MOST_FAILED * len(texts):
                return None
            try:
                async with asyncio.timeout(timeout_s):
                    return await attempted_scores(reviewer, text, own, _ATTEMPTS)
            except (ReviewError, TimeoutError) as error:
                failures.append(str(error) or f"no scores within {timeout_s:g} s")
                return None
            finally:
                done()

    try:
        with progress_bar(total=len(texts), desc="review", unit="doc") as bar:
            found = await asyncio.gather(
                *(review(*each, bar.update) for each in zip(texts, candidates, strict=True))
            )
    finally:
        await reviewer.close()
    if len(failures) > _MOST_FAILED * len(texts):
        raise ConfigError(
            f"reviewer {reviewer.name!r} failed on {len(failures)} documents, the last time with: "
            f"{failures[-1]}; expected to fail on at most {_MOST_FAILED:.0%} of {len(texts)}"
        )
    return found
