"""How many labels a text needs: the threshold "auto"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import Float64
from pydantic import ConfigDict, Field

from longtail.models.errors import RequestError
from longtail.models.files.typed_json import json_forms
from longtail.models.fitted.part import Answered, Asked, FittedPart
from longtail.models.options import AUTO, AUTO_K
from longtail.models.ranking.top_k import NO_LABEL


@dataclass(frozen=True, slots=True)
class PlaceThreshold:
    """A threshold that rises with the place of a label in its text.

    The label in place i, counted from 1, is answered where the log-odds that it is ranked by are at
    least first + rise log i. With rise 0 that is one threshold for all labels, and the larger it
    is, the less the number of labels differs between texts.

    Attributes:
        first: Log-odds, in nats.
        rise: At least 0.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    first: Annotated[float, Field(allow_inf_nan=False)]
    rise: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    def of_texts(self, log_odds: Float64[np.ndarray, "text k"]) -> Float64[np.ndarray, text]:
        """Return the log-odds of the last answered label of each text; inf where there is none.

        Args:
            log_odds: Log-odds of the best labels of each text, falling.
        """
        places = np.arange(1, log_odds.shape[1] + 1)
        is_answered = log_odds >= self.first + self.rise * np.log(places)
        found: Float64[np.ndarray, text] = np.where(is_answered, log_odds, np.inf).min(axis=1)
        return found


LabelCounts = Mapping[str, PlaceThreshold]
"""By scorer."""


class LabelCountsPart(FittedPart[LabelCounts]):
    """Answers with as many labels as each text needs, where the threshold is "auto"."""

    name = "label_counts"
    forms = json_forms(dict[str, PlaceThreshold])
    lacking = MappingProxyType({})

    def prepared(self, value: LabelCounts, asked: Asked) -> Asked:
        """Return the query with enough ranked labels to tell how many a text needs."""
        if asked.options.threshold != AUTO:
            return asked
        if asked.scorer not in value:
            there = ", ".join(value) or "none"
            raise RequestError(
                f"threshold is 'auto', which was not fitted for scorer {asked.scorer!r}; expected "
                f"one of {there}; give a number, or train with a dev split"
            )
        return replace(asked, depth=max(asked.depth, min(AUTO_K, len(asked.training_counts))))

    def annotated(self, value: LabelCounts, answered: Answered) -> Answered:
        """Return the labels up to the last one that each text needs."""
        if answered.asked.options.threshold != AUTO:
            return answered
        log_odds, probabilities = answered.log_odds, answered.probabilities
        assert log_odds is not None and probabilities is not None  # as the presenter has checked
        last = value[answered.asked.scorer].of_texts(log_odds)
        is_answered = log_odds >= last[:, None]
        labels = np.where(is_answered, answered.labels, NO_LABEL)
        least = np.where(is_answered, probabilities, np.inf).min(axis=1)
        return replace(answered, labels=labels, least=least.tolist())


LABEL_COUNTS = LabelCountsPart()
