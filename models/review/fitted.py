"""The weight of a reviewer's scores beside the model's, by the rarity of the label.

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
    RarityBlend,
    blend_of,
    check_blend,
    check_calibration,
    check_texts,
)
from longtail.models.files.json_text import parse_own_json, whole_number_of
from longtail.models.scorers.blending import FittedBlend

REVIEW_NAME = "review.json"
"""Of the file of a bundle that holds it."""
MODEL, REVIEWER = "model", "reviewer"
"""The two members of the blend."""
MIN_CANDIDATES, MAX_CANDIDATES = 2, 50


@dataclass(frozen=True, slots=True)
class FittedReview:
    """How the scores of a reviewer change the log-odds of the best labels of a text.

    Attributes:
        scorer: The scorer whose best labels are reviewed.
        reviewer: The name of the reviewer (see `Reviewer.name`).
        num_candidates: Labels of a text that it scores, the best ones.
        num_documents: Documents that this was fitted on.
        calibrations: Of the scores of `MODEL` and `REVIEWER`, among the candidates.
        blend: Of the two, by training documents.
    """

    scorer: str
    reviewer: str
    num_candidates: int
    num_documents: int
    calibrations: Mapping[str, Calibration]
    blend: RarityBlend

    def __post_init__(self) -> None:
        """Refuse values out of their range.

        Raises:
            TypeError: There are some.
        """
        check_texts([self.scorer, self.reviewer])
        whole_number_of(self.num_candidates, "num_candidates", MIN_CANDIDATES, MAX_CANDIDATES)
        whole_number_of(self.num_documents, "num_documents", 1, 2**40)
        if {*self.calibrations} != {MODEL, REVIEWER} or {*self.blend.weights} != {MODEL, REVIEWER}:
            raise TypeError(f"expected calibrations and weights of {MODEL} and {REVIEWER}")
        for name, calibration in self.calibrations.items():
            check_calibration(name, calibration)
        check_blend("review", self.blend)

    def log_odds(
        self,
        scores: Float32[np.ndarray, candidate],
        reviewed: Float32[np.ndarray, candidate],
        training_counts: Int64[np.ndarray, candidate],
    ) -> Float64[np.ndarray, candidate]:
        """Return the log-odds that candidates are right, in nats.

        Args:
            scores: By the scorer.
            reviewed: By the reviewer.
            training_counts: Training documents of each label.
        """
        given = {MODEL: scores, REVIEWER: reviewed}
        members = tuple(self.blend.weights)
        priors = np.zeros(len(scores), dtype=np.float32)
        own = [self.calibrations[name] for name in members]
        blend = FittedBlend(self.blend, own, training_counts, priors)
        stacked = np.stack([given[name] for name in members])[:, None].astype(np.float32)
        found: Float64[np.ndarray, candidate] = blend.log_odds(
            stacked, np.arange(len(scores), dtype=np.int64)[None]
        )[0]
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
        calibrations = {
            name: Calibration(tuple(each["knots"]), tuple(each["slopes"]), each["intercept"])
            for name, each in content["calibrations"].items()
        }
        read = {"calibrations": calibrations, "blend": blend_of(content["blend"])}
        return cls(**content | read)
