"""Which scorer answers where a request names none: a blend, unless dev prefers another one.

On the documents that a blend was fitted on it ranks a little better than on others, and what is
fitted on a part of them ranks a little worse. On a small dev split both are as large as the
differences between good scorers, so a difference decides only where it is larger than chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64

from longtail.models.names import ENSEMBLE, FAST
from longtail.training.calibration.ensemble import Blending
from longtail.training.calibration.members import DevRanking

CONFIDENCE_Z = 1.96
"""Standard errors of a mean difference from which on it is larger than chance: 95 %, two-sided."""
_NUM_FOLDS = 5


class DefaultScorer(NamedTuple):
    """The scorer of requests that name none.

    Attributes:
        name: Its name.
        reason: Why it is this one, as a sentence with the figures; empty where there is one alone.
    """

    name: str
    reason: str


class Lead(NamedTuple):
    """How much better one scorer ranks documents than another.

    Attributes:
        mean: Mean difference of P@k over the documents, as a fraction.
        error: Its standard error.
    """

    mean: float
    error: float

    @classmethod
    def of(cls, differences: Float64[np.ndarray, document], k: int) -> Lead:
        """Return the lead with one document more, which takes a place from the first scorer.

        So a few documents that all prefer the first one decide nothing.
        """
        values = np.append(differences, -1 / k)
        error = float(values.std(ddof=1)) / math.sqrt(len(values))
        return cls(float(values.mean()), error)

    @property
    def margin(self) -> float:
        """Difference that chance explains."""
        return CONFIDENCE_Z * self.error

    @property
    def is_beyond_chance(self) -> bool:
        """Whether the first scorer is better."""
        return self.mean > self.margin


def choose_default(
    dev: DevRanking, blending: Blending, scorers: Sequence[str], where: str = "dev"
) -> DefaultScorer:
    """Return the blend, or the scorer that has a higher P@k on dev than the blend beyond chance.

    The blend is `ensemble`, else `fast`. Blends are cross-fitted: each part of the documents is
    ranked by a blend that is fitted on the others. k is 5, or 1 where there are fewer labels.
    Without a blend, the scorer with the highest P@k is chosen; of equal ones the last.

    Args:
        dev: The dev split; of many documents, some decide.
        blending: Of its scorers.
        scorers: All names, in their order.
        where: What the documents are called in the reason.
    """
    dev = dev.thinned()
    k = 5 if len(dev.catalogue) >= 5 else 1
    values = {name: dev.precision(_scores(dev, blending, name), k) for name in scorers}
    best = max(reversed(values), key=lambda name: float(values[name].mean()))
    if len(values) == 1:
        return DefaultScorer(best, "")
    blend = next((name for name in (ENSEMBLE, FAST) if name in blending.blends), None)
    if blend is None or best == blend:
        others = ", ".join(f"{x} {_percent(values[x])}" for x in values if x != best)
        highest = (
            f"{best} has the highest P@{k} on {where}, {_percent(values[best])} (others: {others})"
        )
        return DefaultScorer(best, highest)
    lead = Lead.of(values[best] - values[blend], k)
    measured = (
        f"P@{k} on {where} is {_percent(values[best])} with {best} and {_percent(values[blend])} "
        f"with {blend} on documents that it was not fitted on; the difference is"
    )
    chance = f"chance (95 %: {100 * lead.margin:.2f} points)"
    if lead.is_beyond_chance:
        return DefaultScorer(best, f"{measured} more than {chance}")
    return DefaultScorer(blend, f"{measured} within {chance}, and then {blend} is the default")


def _percent(values: Float64[np.ndarray, document]) -> str:
    return f"{100 * float(values.mean()):.2f} %"


def _scores(dev: DevRanking, blending: Blending, name: str) -> Float32[np.ndarray, "document m"]:
    if (blend := blending.blends.get(name)) is None:
        return dev.pairs.scores[name]
    return dev.cross_fitted(list(blend.weights), blending.calibrations, _NUM_FOLDS)
