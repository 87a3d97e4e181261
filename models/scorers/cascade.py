"""Which texts a cheap scorer answers alone: a rule over how sure its best labels are.

`cascade` lets `fast`, which needs no encoder, answer first. Where the places of its best labels
might well change, `ensemble` answers instead. Each answer is the exact ranking of one of the two.
`longtail.training.calibration.cascade` fits the rule, so that a stated share of P@k is lost at
most.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields

import numpy as np
from jaxtyping import Bool, Float64
from scipy.special import ndtr

from longtail.models.files.json_text import parse_own_json

CASCADE_NAME = "cascade.json"
"""Of the file of a bundle that holds its rule."""
NUM_CONTENDERS = 10
"""Labels behind the best k that might take one of their places."""
_MAX_PLACES = 1000
"""The doubt compares each of the best k labels with each behind them."""
_LEAST_LOG_ODDS = -30.0
"""Nats; lower ones, and labels without a score, count as these."""


@dataclass(frozen=True, slots=True)
class CascadeRule:
    """Says of which texts the answer of the first stage stands.

    Attributes:
        places: k of the P@k that may be lost; at least 1.
        noise: How far the second stage's log-odds lie from the first one's: their standard
            deviation in nats, above 0.
        most_doubt: The first stage answers where the doubt is no larger (see `doubt`).
        max_loss: Of P@k, a fraction: what may be lost in the mean over texts.
        loss: What is lost on the dev split, a fraction.
        loss_limit: What is hardly exceeded: the upper confidence limit of that, at most `max_loss`.
        first_share: Share of the dev split that the first stage answers.
    """

    places: int
    noise: float
    most_doubt: float
    max_loss: float
    loss: float
    loss_limit: float
    first_share: float

    def __post_init__(self) -> None:
        """Refuse what is no rule.

        Raises:
            ValueError: A number is out of its range.
            TypeError: One is of another type.
        """
        numbers = [getattr(self, field.name) for field in fields(self)]
        if type(self.places) is not int or any(type(x) is not float for x in numbers[1:]):
            raise TypeError(f"cascade {self}: expected a whole number of places, else fractions")
        is_finite = all(map(math.isfinite, numbers)) and 1 <= self.places <= _MAX_PLACES
        if not is_finite or self.noise <= 0 or not 0 <= self.first_share <= 1:
            raise ValueError(
                f"cascade {self}: expected finite numbers, places from 1 to {_MAX_PLACES}, "
                "noise above 0 and a share from 0 to 1"
            )

    @property
    def num_labels(self) -> int:
        """The best labels of a text that the rule looks at."""
        return self.places + NUM_CONTENDERS

    def is_answered(self, log_odds: Float64[np.ndarray, "text place"]) -> Bool[np.ndarray, text]:
        """Return which texts the first stage answers.

        Args:
            log_odds: Of its best `num_labels` labels, or all there are, calibrated and falling;
                -inf where a text has fewer.
        """
        found: Bool[np.ndarray, text] = doubt(log_odds, self.places, self.noise) <= self.most_doubt
        return found

    def to_json(self) -> str:
        """Return the content of the file `CASCADE_NAME`."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> CascadeRule:
        """Read what `to_json` wrote; numbers come back as they were.

        Raises:
            ValueError: It is no JSON, or a number is out of its range.
            TypeError: A field is missing, unknown or of another type.
        """
        content = parse_own_json(text)
        if not isinstance(content, dict):
            raise TypeError(f"expected an object, got {text[:40]!r}")
        return cls(**content)


def doubt(
    log_odds: Float64[np.ndarray, "text place"], places: int, noise: float
) -> Float64[np.ndarray, text]:
    """Return how many labels behind the best k would pass how many of them, in expectation.

    That is so if each label's log-odds move by independent normal noise: the sum of Phi((g_j -
    g_i) / (noise sqrt 2)) over the labels i of the best k and j behind them.

    Args:
        log_odds: Of the best labels of each text, falling; -inf where there are no more.
        places: k.
        noise: Standard deviation, in nats.
    """
    finite = np.maximum(log_odds, _LEAST_LOG_ODDS)
    rises = finite[:, None, places:] - finite[:, :places, None]
    found: Float64[np.ndarray, text] = ndtr(rises / (noise * math.sqrt(2))).sum(axis=(1, 2))
    return found
