"""Blends of scorers: weighted means of the probabilities that they give.

A blend rises with the score of each of its scorers, so `models.ranking.threshold_algorithm` ranks
by it exactly. A label that a scorer can't score (one without training documents has no row in a
classifier) has probability 0 from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32, Int64
from scipy.special import logit

from models.bundle.manifest import Calibration
from models.labels.selection import Selection
from models.scorers.calibration import IDENTITY, probabilities_of

_CLOSEST_TO_ZERO, _CLOSEST_TO_ONE = 1e-300, 1 - 2.0**-53
"""Of a blend; so its log-odds are finite."""
_SLACK = 2.0**-48
"""By this share a mean of probabilities, rounded as it is, may be too small."""


@dataclass(frozen=True, slots=True)
class Member:
    """A scorer in a blend.

    Attributes:
        name: The scorer.
        weight: Above 0.
        calibration: What makes log-odds of its scores.
    """

    name: str
    weight: float
    calibration: Calibration


class Blend:
    """A weighted mean of several scorers' probabilities.

    Its score is the log-odds of this mean, less tau times log pi_y with a tail dial tau.
    """

    def __init__(self, members: Sequence[Member], log_priors: Float32[np.ndarray, label]) -> None:
        """Note who takes part.

        Args:
            members: At least one; their weights sum to 1.
            log_priors: log pi of each label, in nats.
        """
        assert members and all(member.weight > 0 for member in members)
        self.members = tuple(members)
        self._log_priors = log_priors.astype(np.float64)
        self._rarest_first = np.argsort(log_priors, kind="stable").astype(np.int64, copy=False)

    def with_tail_dial(self, tail_dial: float) -> DialledBlend:
        """Return the blend as it is ranked by.

        Args:
            tail_dial: tau, at least 0.
        """
        return DialledBlend(self, tail_dial, self._rarest_first)

    def blended(
        self,
        scores: Float32[np.ndarray, "member row m"],
        labels: Int64[np.ndarray, "#row m"],
        tail_dial: float = 0.0,
        slack: float = 0.0,
    ) -> Float32[np.ndarray, "row m"]:
        """Return the blended scores that these scores of the members make, rounded once.

        Args:
            scores: Of each member; -inf, of a label that it can't score, counts as probability 0.
            labels: Whose scores they are.
            tail_dial: tau, at least 0.
            slack: By this share the means are raised.
        """
        # p(y|x) = sum_i w_i sigmoid(c_i(s_i)), with sigmoid(-inf) = 0
        mean = np.zeros(scores.shape[1:])
        for member, own in zip(self.members, scores, strict=True):
            mean += member.weight * probabilities_of(member.calibration, own)
        # s(x, y) = logit p(y|x) - tau log pi_y, in float64 until it is rounded once
        blended = logit(np.clip(mean * (1 + slack), _CLOSEST_TO_ZERO, _CLOSEST_TO_ONE))
        if tail_dial:
            blended -= tail_dial * self._log_priors[labels]
        is_nobodys = (scores == -np.inf).all(axis=0)
        return np.where(is_nobodys, -np.inf, blended).astype(np.float32)


@dataclass(frozen=True, slots=True)
class DialledBlend:
    """A blend with a tail dial: a `Combination` of the scores of its members.

    Attributes:
        blend: Which scorers, and how much of each.
        tail_dial: tau.
        rarest_first: The labels that may be returned, by rising pi_y.
    """

    blend: Blend
    tail_dial: float
    rarest_first: Int64[np.ndarray, candidate]

    def combine(
        self, scores: Float32[np.ndarray, "member row m"], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the blended scores (see `Blend.blended`)."""
        return self.blend.blended(scores, labels, self.tail_dial)

    def among(self, selection: Selection) -> DialledBlend:
        """Return the same where only the selected labels may be returned."""
        selected = self.rarest_first[selection.is_selected[self.rarest_first]]
        return replace(self, rarest_first=selected)

    def leading(self, depth: int) -> Int64[np.ndarray, label]:
        """Return the rarest labels, which the tail dial raises most."""
        return self.rarest_first[: depth if self.tail_dial else 0]

    def bound(
        self, frontiers: Float32[np.ndarray, "member row"], depth: int
    ) -> Float32[np.ndarray, row]:
        """Return the blend of the frontiers, raised as the rarest label is that is not named.

        It is a little more than that, as an exponential in float64 need not be monotone to the bit.
        """
        rarest = self.rarest_first[:depth][-1:, None]  # as rare as any that is not named, or rarer
        bound = self.blend.blended(frontiers[:, :, None], rarest, self.tail_dial, _SLACK)[:, 0]
        return np.where(np.isneginf(bound), bound, np.nextafter(bound, np.float32(np.inf)))


def mean_of_sigmoids(names: Sequence[str], log_priors: Float32[np.ndarray, label]) -> Blend:
    """Return the blend of scorers as they are: of two, DEPL+c (DEPL, Eq. 4).

    Args:
        names: Scorers whose scores are log-odds.
        log_priors: Of all labels.
    """
    return Blend([Member(name, 1 / len(names), IDENTITY) for name in names], log_priors)


def weighted_blend(
    weights: Mapping[str, float],
    calibrations: Mapping[str, Calibration],
    log_priors: Float32[np.ndarray, label],
) -> Blend:
    """Return the blend of calibrated scorers; those of weight 0 take no part.

    Args:
        weights: Of each scorer.
        calibrations: Of each scorer.
        log_priors: Of all labels.
    """
    members = [
        Member(name, weight, calibrations[name]) for name, weight in weights.items() if weight
    ]
    return Blend(members, log_priors)
