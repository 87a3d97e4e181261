"""Reviewers: they score the candidates of a text from outside of the model.

A fitted review says how much these scores count, by the rarity of the label;
`longtail.training.calibration.reviews` fits it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Float64, Int64
from pydantic import ConfigDict, Field

from longtail.models.bundle.manifest import Calibration, check_calibration
from longtail.models.errors import LongtailError, ignore
from longtail.models.files.typed_json import json_forms
from longtail.models.labels.catalogue import Label
from longtail.models.labels.text import PART_END
from longtail.models.scorers.calibration import log_odds_of

MAX_TEXT_CHARACTERS = 4000
"""Characters of a text that a reviewer gets; the rest is left out."""
_MAX_CANDIDATE_CHARACTERS, _MAX_KEYWORD_CHARACTERS = 400, 80
_LARGEST_SCORE = 1e6
_FIRST_PAUSE_S = 0.1


class ReviewError(LongtailError):
    """A reviewer gave no usable scores."""


class PassingReviewError(ReviewError):
    """A reviewer gave no usable scores, and may give some at another attempt."""


@runtime_checkable  # the test run checks annotations by isinstance
class Reviewer(Protocol):
    """Scores candidates; belongs to one event loop, which it never blocks."""

    name: str
    """Kind and model: a fit for one name is not used with another one."""

    @property
    def reads_keywords(self) -> bool:
        """Whether candidates come with the keywords that the label encoder reads."""
        ...

    async def scores(self, text: str, candidates: Sequence[str]) -> list[float]:
        """Return a score for each candidate, higher is better. The caller bounds the time.

        Raises:
            ReviewError: There are none.
        """
        ...

    async def close(self) -> None:
        """Close all connections and threads."""
        ...


def candidate_text(label: Label, *, with_keywords: bool = False) -> str:
    """Return the name of a label and its description, cut to 400 characters.

    With keywords, it is the pseudo description of DEPL (section 3.2) where there is one, cut to 80.
    """
    if with_keywords and label.pseudo_description:
        return label.pseudo_description[:_MAX_KEYWORD_CHARACTERS]
    parts = filter(None, (label.name.strip(), label.description.strip()))
    return PART_END.join(parts)[:_MAX_CANDIDATE_CHARACTERS]


def number(value: object) -> float:
    """Return a number of an answer; neither true nor text is one, though `float` takes them."""
    if type(value) not in {int, float}:
        raise TypeError
    return float(value)  # type: ignore[arg-type]


async def attempted_scores(
    reviewer: Reviewer,
    text: str,
    candidates: Sequence[str],
    attempts: int,
    before_each: Callable[[], object] = ignore,
) -> list[float]:
    """Return the scores of a reviewer by the first attempt that gives some.

    Args:
        reviewer: Is asked again where its failure may pass, after a pause that doubles.
        text: Cut to `MAX_TEXT_CHARACTERS`.
        candidates: Texts of labels.
        attempts: The most, at least 1.
        before_each: Called before each attempt; what it raises ends them.

    Raises:
        PassingReviewError: The last attempt fails, too.
        ReviewError: There are other than as many scores as candidates, all finite.
    """
    for attempt in range(1, attempts + 1):
        before_each()
        try:
            found = await reviewer.scores(text[:MAX_TEXT_CHARACTERS], candidates)
            break
        except PassingReviewError:
            if attempt == attempts:
                raise
        await asyncio.sleep(_FIRST_PAUSE_S * 2 ** (attempt - 1))
    are_usable = all(abs(score) <= _LARGEST_SCORE for score in found)  # NaN is not, either
    if len(found) != len(candidates) or not are_usable:
        got = f"got {len(found)} scores"
        raise ReviewError(f"{got}, expected {len(candidates)} from -1e6 to 1e6")
    return found


REVIEW_NAME = "review.json"
"""The file of a bundle that holds a fitted review."""
MODEL, REVIEWER = "model", "reviewer"
"""Names of the two scores of a candidate."""
KNOTS = (0, 1, 3, 10, 30, 100, 1000)
"""Training documents of a label, at the weights."""
MIN_CANDIDATES, MAX_CANDIDATES = 2, 50
_Weight = Annotated[float, Field(ge=0, le=1e12)]


@dataclass(frozen=True, slots=True)
class FittedReview:
    """How the scores of a reviewer change the log-odds of the best labels of a text.

    Attributes:
        scorer: The scorer whose best labels are reviewed.
        reviewer: The name of the reviewer (see `Reviewer.name`).
        num_candidates: Labels of a text that it scores, the best ones.
        num_documents: Documents that this was fitted on.
        model_curve: Log-odds of the scores by the scorer, among the candidates.
        reviewer_curve: What the scores of the reviewer add to the log-odds of any candidate, in
            nats.
        weights: Of what the reviewer adds, at the `KNOTS`; linear in ln(1 + n) between.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    scorer: str
    reviewer: str
    num_candidates: Annotated[int, Field(ge=MIN_CANDIDATES, le=MAX_CANDIDATES)]
    num_documents: Annotated[int, Field(ge=1)]
    model_curve: Calibration
    reviewer_curve: Calibration
    weights: Annotated[tuple[_Weight, ...], Field(min_length=len(KNOTS), max_length=len(KNOTS))]

    def __post_init__(self) -> None:
        """Refuse curves that do not rise, by TypeError."""
        check_calibration(MODEL, self.model_curve)
        check_calibration(REVIEWER, self.reviewer_curve)

    def log_odds(
        self,
        scores: Float32[np.ndarray, "*shape"],
        reviewed: Float32[np.ndarray, "*shape"],
        training_counts: Int64[np.ndarray, "*shape"],
    ) -> Float64[np.ndarray, "*shape"]:
        """Return the log-odds that candidates are right, in nats.

        They are -inf where the score by the scorer is, as there is no candidate.
        """
        weights = np.interp(np.log1p(training_counts), np.log1p(KNOTS), self.weights)
        added = weights * log_odds_of(self.reviewer_curve, reviewed)
        found: Float64[np.ndarray, "*shape"] = log_odds_of(self.model_curve, scores) + added
        return found


review_to_json, review_from_json = json_forms(FittedReview)
"""Write and read the file `REVIEW_NAME`."""
