"""How much a reviewer's scores count, as a part of a model; `longtail review` fits it."""

from __future__ import annotations

from longtail.models.files.typed_json import json_forms
from longtail.models.fitted.part import FittedPart
from longtail.models.parts.model_parts import ModelParts
from longtail.models.review.reviewer import FittedReview


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
