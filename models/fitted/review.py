"""How much a reviewer's scores count, as a part of a model; `longtail review` fits it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import Float32, Float64, Int64
from pydantic import ConfigDict, Field

from longtail.models.bundle.manifest import Calibration, check_calibration
from longtail.models.files.typed_json import json_forms
from longtail.models.fitted.part import FittedPart
from longtail.models.parts.model_parts import ModelParts
from longtail.models.scorers.calibration import log_odds_of

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
        reviewer: The name of the reviewer: its kind and model.
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


class ReviewPart(FittedPart[FittedReview | None]):
    """Read by the service, which asks the reviewer."""

    name = "review"
    forms = json_forms(FittedReview)

    def problem(self, value: FittedReview | None, parts: ModelParts) -> str:
        """Return that it is of a scorer that the model lacks."""
        if value is None or value.scorer in parts.scorers:
            return ""
        return f"a review of {value.scorer!r}, expected one of a scorer"


REVIEW = ReviewPart()
