"""How much a reviewer's scores count beside the model's, by the rarity of the label.

`longtail.training.calibration.reviews` fits it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64

from longtail.models.bundle.manifest import (
    Calibration,
    check_calibration,
    check_finite,
    check_texts,
)
from longtail.models.files.json_text import parse_own_json, whole_number_of
from longtail.models.scorers.calibration import log_odds_of

REVIEW_NAME = "review.json"
"""Of the file of a bundle that holds it."""
MODEL, REVIEWER = "model", "reviewer"
"""Whose scores are calibrated."""
KNOTS = (0, 1, 3, 10, 30, 100, 1000)
"""Training documents of a label, at the weights."""
MIN_CANDIDATES, MAX_CANDIDATES = 2, 50


@dataclass(frozen=True, slots=True)
class FittedReview:
    """How the scores of a reviewer change the log-odds of the best labels of a text.

    Attributes:
        scorer: The scorer whose best labels are reviewed.
        reviewer: The name of the reviewer (see `Reviewer.name`).
        num_candidates: Labels of a text that it scores, the best ones.
        num_documents: Documents that this was fitted on.
        calibrations: Among the candidates: what scores of `MODEL` are as log-odds, and what those
            of `REVIEWER` add to the log-odds of any candidate, in nats.
        weights: Of what the reviewer adds, at the `KNOTS`, at least 0; linear in ln(1 + n) between.
    """

    scorer: str
    reviewer: str
    num_candidates: int
    num_documents: int
    calibrations: Mapping[str, Calibration]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse values out of their range.

        Raises:
            TypeError: There are some.
        """
        check_texts([self.scorer, self.reviewer])
        whole_number_of(self.num_candidates, "num_candidates", MIN_CANDIDATES, MAX_CANDIDATES)
        whole_number_of(self.num_documents, "num_documents", 1, 2**40)
        if {*self.calibrations} != {MODEL, REVIEWER}:
            raise TypeError(f"expected calibrations of {MODEL} and {REVIEWER}")
        for name, calibration in self.calibrations.items():
            check_calibration(name, calibration)
        check_finite(self.weights)
        if len(self.weights) != len(KNOTS) or min(self.weights) < 0:
            raise TypeError(f"weights {self.weights}, expected {len(KNOTS)}, at least 0 each")

    def log_odds(
        self,
        scores: Float32[np.ndarray, "*shape"],
        reviewed: Float32[np.ndarray, "*shape"],
        training_counts: Int64[np.ndarray, "*shape"],
    ) -> Float64[np.ndarray, "*shape"]:
        """Return the log-odds that candidates are right, in nats.

        Args:
            scores: By the scorer; -inf where there is no candidate.
            reviewed: By the reviewer.
            training_counts: Training documents of each label.
        """
        weights = np.interp(np.log1p(training_counts), np.log1p(KNOTS), self.weights)
        added = weights * log_odds_of(self.calibrations[REVIEWER], reviewed)
        found: Float64[np.ndarray, "*shape"] = log_odds_of(self.calibrations[MODEL], scores) + added
        return found

    def to_json(self) -> str:
        """Return the content of the file `REVIEW_NAME`."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> FittedReview:
        """Read the result of `to_json`.

        Raises:
            ValueError: It is no JSON.
            KeyError, TypeError, AttributeError: A field is missing, unknown or out of its range.
        """
        content = parse_own_json(text)
        content["calibrations"] = {
            name: Calibration(tuple(each["knots"]), tuple(each["slopes"]), each["intercept"])
            for name, each in content["calibrations"].items()
        }
        return cls(**content | {"weights": tuple(content["weights"])})
