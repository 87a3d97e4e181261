"""The rule of a cascade: up to which doubt the first stage answers, fitted on the dev split.

The more texts the first stage answers, the more of P@k may be lost. The doubt is raised from none
on until the upper confidence limit of the loss passes what is allowed: tests in a fixed order,
which stop at the first that fails, need no correction for their number (Angelopoulos et al. 2021,
arXiv:2110.01052, "fixed sequence testing"). Both stages are cross-fitted: each half of the
documents is ranked by blends that were fitted on the other half.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from longtail.models.files.durable import write_lines_durably
from longtail.models.names import CASCADE, STAGES, WITHOUT_ENCODER
from longtail.models.scorers.calibration import log_odds_of
from longtail.models.scorers.cascade import CASCADE_NAME, NUM_CONTENDERS, CascadeRule, doubt
from longtail.training.calibration.ensemble import Blending
from longtail.training.calibration.members import CUT_OFF, DevRanking

logger = logging.getLogger(__name__)

CONFIDENCE_Z = 1.2816
"""Standard errors between the loss and its upper limit: of 90 %, on one side."""
_LEAST_SHARE = 0.1
"""Of the documents that the first stage must answer for a cascade to be worth its name."""
_DECIMALS = 6
"""Of losses kept, which are fractions; further ones are of rounding."""
_LEAST_NOISE = 0.01
"""Nats; stages that hardly differ leave no doubt, but for equal log-odds."""


class Limit(NamedTuple):
    """How many documents the first stage may answer, those of least doubt.

    Attributes:
        num_first: Of them.
        loss: What is lost then, of P@k, over all documents: a fraction.
        upper: Its upper confidence limit.
    """

    num_first: int
    loss: float
    upper: float


def kept_cascade(folder: Path, fit: Callable[[], CascadeRule | None]) -> CascadeRule | None:
    """Return what the folder holds, or fit it and keep it there, if there is something to keep."""
    path = folder / CASCADE_NAME
    if path.exists():
        return CascadeRule.from_json(path.read_text(encoding="utf-8"))
    rule = fit()
    if rule is not None:
        folder.mkdir(parents=True, exist_ok=True)
        write_lines_durably(path, [rule.to_json()])
    return rule


def fit_cascade(dev: DevRanking, blending: Blending, max_loss: float) -> CascadeRule | None:
    """Return which documents the first stage may answer; None where it is too few of them.

    Args:
        dev: The dev split.
        blending: Of its scorers, as fitted on it.
        max_loss: Of P@k, a fraction: what the upper limit of the loss may be.
    """
    if problem := _problem_of(blending):
        logger.warning("no scorer %r: %s", CASCADE, problem)
        return None
    calibrations = blending.calibrations
    scores = [dev.cross_fitted([*blending.blends[x].weights], calibrations) for x in STAGES]
    log_odds = [
        log_odds_of(calibrations[name], own) for name, own in zip(STAGES, scores, strict=True)
    ]
    k = min(CUT_OFF, len(dev.catalogue) - 1)
    places = [dev.best_places(own, k + NUM_CONTENDERS) for own in scores]
    hits = [np.take_along_axis(dev.pairs.is_true, x[:, :k], axis=1).sum(axis=1) for x in places]
    losses = (hits[1] - hits[0]) / k
    first, second = (np.take_along_axis(each, places[0], axis=1) for each in log_odds)
    noise = _rounded(max(_LEAST_NOISE, _distance(first, second)))
    doubts = doubt(first, k, noise)
    found = within_limit(doubts, losses, 1 / k, max_loss)
    share = found.num_first / len(losses)
    said = (
        f"{STAGES[0]!r} could answer {100 * share:.0f} % of {len(losses)} dev documents with a "
        f"loss of P@{k} of {100 * found.loss:.2f} points, {100 * found.upper:.2f} at most (90 %), "
        f"of {100 * max_loss:g} allowed; in place of all, {100 * losses.mean():.2f}"
    )
    if share < _LEAST_SHARE:
        logger.warning("no scorer %r: %s, fewer than %g %%", CASCADE, said, 100 * _LEAST_SHARE)
        return None
    logger.info("%s: %s", CASCADE, said)
    return CascadeRule(
        places=k,
        noise=noise,
        most_doubt=_rounded_up(float(np.sort(doubts)[found.num_first - 1])),
        max_loss=max_loss,
        loss=round(found.loss, _DECIMALS),
        loss_limit=round(found.upper, _DECIMALS),
        first_share=_rounded(share),
    )


def within_limit(
    doubts: Float64[np.ndarray, document],
    losses: Float64[np.ndarray, document],
    step: float,
    max_loss: float,
) -> Limit:
    """Return how many documents the first stage may answer.

    One document more than there are counts as one that loses a place: where no loss was seen,
    there may be one nevertheless.

    Args:
        doubts: Of each document.
        losses: Of P@k where the first stage answers it; below 0 where it is better.
        step: The smallest loss there is.
        max_loss: What the upper limit of the mean over all documents may be.
    """
    order = np.argsort(doubts, kind="stable")
    size = len(losses) + 1
    sums = step + np.cumsum(losses[order])
    squares = step**2 + np.cumsum(losses[order] ** 2)
    means = sums / size
    variances = np.maximum(squares / size - means**2, 0)  # below 0 by rounding
    upper = means + CONFIDENCE_Z * np.sqrt(variances / size)
    is_last_of_equals = np.append(np.diff(doubts[order]) > 0, True)
    tested = np.flatnonzero(is_last_of_equals)
    is_too_much = upper[tested] > max_loss
    passed = tested[: int(is_too_much.argmax()) if is_too_much.any() else len(tested)]
    if not len(passed):
        return Limit(0, 0.0, step / size)
    last = int(passed[-1])
    return Limit(last + 1, float((sums[last] - step) / len(losses)), float(upper[last]))


def _problem_of(blending: Blending) -> str:
    """Return why there can't be a cascade; empty where there can."""
    missing = [name for name in STAGES if name not in blending.blends]
    if missing:
        return f"there is no {missing[0]!r}"
    if set(blending.blends[STAGES[1]].weights) <= set(WITHOUT_ENCODER):
        return f"{STAGES[1]!r} reads by no encoder, so it takes no longer than {STAGES[0]!r}"
    return ""


def _distance(
    first: Float64[np.ndarray, "document m"], second: Float64[np.ndarray, "document m"]
) -> float:
    """Return the standard deviation of the difference of log-odds, where both are finite."""
    is_finite = np.isfinite(first) & np.isfinite(second)
    differences = second[is_finite] - first[is_finite]
    return float(differences.std()) if len(differences) else 0.0


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _rounded_up(value: float) -> float:
    """Return six significant digits, no less than the value but for rounding errors."""
    return _rounded(value * (1 + 1e-6))
