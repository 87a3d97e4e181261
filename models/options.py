"""What a query asks for about each of its texts. Needs neither PyTorch nor NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from types import NoneType
from typing import Any, Literal, TypedDict

from longtail.models.errors import RequestError
from longtail.models.labels.filters import LabelFilter

AimName = Literal["precision", "propensity"]
"""The measure that an answer is ranked for: P@k or PSP@k."""
PRECISION: AimName = "precision"
PROPENSITY: AimName = "propensity"
AIM_NAMES: tuple[AimName, ...] = (PRECISION, PROPENSITY)

DEFAULT_K = 5
"""Labels of a text where nobody says how many; of a model with fewer, all of them."""
AUTO = "auto"
AUTO_K = 50
"""The same with the threshold "auto", which looks at as many labels of a text."""
MAX_TAIL_DIAL = 1000.0
"""Beyond it, float32 scores would tell labels of unlike frequency apart, and no others."""

_SHOWN_CHARACTERS = 40
"""Characters of a refused value that an error shows."""


@dataclass(frozen=True, slots=True)
class RankingOptions:
    """What to answer about a text; texts of equal options are ranked together.

    Attributes:
        k: Number of labels per text, at least 1.
        scorer: One of the model's; None: its default.
        threshold: Least probability of a label, from 0 to 1; "auto": as many labels as the text
            needs (see `longtail.models.fitted.label_counts`), at most k; None: labels of any.
        correction: What is added to the scores: "none", or what the scorer was trained with; None:
            the latter.
        tail_dial: tau, from 0 to `MAX_TAIL_DIAL`: tau times log pi_y is taken off the score of
            every label y, pi_y being its share of the training pairs (logit adjustment; Menon et
            al. 2021). Above 0, scores are no log-odds any more, and labels have no probabilities.
        aim: The measure to rank for: "precision" (P@k), the same as None, or "propensity" (PSP@k),
            with which the score is the probability times the inverse propensity (see
            `longtail.models.scorers.propensity`); labels keep their probabilities.
        accept: The promise by which labels are marked as accepted: a number, the precision; its
            name, such as "recall 0.9"; or true, the default one of the model. None or false: no
            label is marked. Not with an aim, which ranks labels by something else.
        label_filter: Whose labels are returned; None: all.
        explain: Whether to say why a text got each label; some milliseconds a label.
        schemes: What to answer of each of several schemes instead (see `with_schemes`).
    """

    k: int = DEFAULT_K
    scorer: str | None = None
    threshold: float | Literal["auto"] | None = None
    correction: str | None = None
    tail_dial: float = 0.0
    aim: str | None = None
    accept: bool | float | str | None = None
    label_filter: LabelFilter | None = None
    explain: bool = False
    schemes: tuple[RankingOptions, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no model could answer."""
        for name, (kinds, expected) in _FIELDS.items():
            value = getattr(self, name)
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                shown = repr(value)[:_SHOWN_CHARACTERS]  # True is an int to Python
                raise RequestError(
                    f"{name} is {shown} ({type(value).__name__}); expected {expected}"
                )
        if self.k < 1:
            raise RequestError(f"k is {self.k}; expected at least 1, at most the number of labels")
        for name, most in (("threshold", 1.0), ("tail_dial", MAX_TAIL_DIAL)):
            value = getattr(self, name)
            if value is None or value == AUTO:
                continue
            if isinstance(value, str) or not 0 <= float(value) <= most:  # nan is not, either
                raise RequestError(f"{name} is {value!r}; expected {_FIELDS[name][1]}")
        if self.aim is not None:
            self._check_aim()

    @property
    def ranked_by(self) -> str:
        """What labels are ranked by besides the score, in words; empty: nothing."""
        dial = f"tail dial {self.tail_dial:g}" if self.tail_dial else ""
        return ", ".join(filter(None, (dial, f"aim {self.aim}" if self.aim else "")))

    def _check_aim(self) -> None:
        if self.aim not in AIM_NAMES:
            raise RequestError(f"aim is {self.aim!r}; expected one of {', '.join(AIM_NAMES)}")
        for name in ("accept", "threshold"):
            value = getattr(self, name)
            if self.aim != PRECISION and (value == "auto" or (name == "accept" and value)):
                raise RequestError(
                    f"aim is {self.aim!r} and {name} {value!r}, which goes by probability; give "
                    "only one of the two"
                )
        if self.tail_dial > 0:
            raise RequestError(
                f"aim is {self.aim!r} and tail_dial {self.tail_dial}; each says how much rare "
                "labels count, so give only one of the two"
            )


_TEXT = ((str, NoneType), "a text or None")
_FIELDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "k": ((int, Integral), "a whole number"),
    "scorer": _TEXT,
    "threshold": ((float, Real, NoneType, str), "a probability from 0 to 1, or 'auto'"),
    "correction": _TEXT,
    "tail_dial": ((float, Real), f"a number from 0 to {MAX_TAIL_DIAL:g}"),
    "aim": _TEXT,
    "accept": ((bool, Real, str, NoneType), "true, false, a precision or the name of a promise"),
    "label_filter": ((LabelFilter, NoneType), "a LabelFilter or None"),
    "explain": ((bool,), "true or false"),
    "schemes": ((tuple,), "options by `with_schemes`"),
}
"""Types of the fields of `RankingOptions`, the usual one first, and their valid values in words."""


_OF_A_SCHEME = ("k", "threshold", "accept")


def with_schemes(
    options: RankingOptions, schemes: Mapping[str, Mapping[str, Any]]
) -> RankingOptions:
    """Return options that ask for the best labels of each of several schemes.

    Each scheme's labels are ranked among themselves, and a label of two of them is answered twice.

    Args:
        options: What holds of all schemes, and what a scheme leaves out.
        schemes: By the name of the scheme, its own `k`, `threshold` and `accept`.
    """
    parts = []
    for name, given in schemes.items():
        if unknown := [key for key in given if key not in _OF_A_SCHEME]:
            raise RequestError(
                f"schemes: {name!r} has {unknown[0]!r}; expected some of {', '.join(_OF_A_SCHEME)}"
            )
        only = replace(options.label_filter or LabelFilter(), scheme=name)
        parts.append(replace(options, label_filter=only, explain=False, schemes=(), **given))
    return replace(options, schemes=tuple(parts))


def default_k(threshold: object, num_labels: int) -> int:
    """Return the labels of a text where nobody says how many."""
    return min(AUTO_K if threshold == AUTO else DEFAULT_K, num_labels)


class RankingKeywords(TypedDict, total=False):
    """The fields of `RankingOptions` as keyword arguments."""

    k: int
    scorer: str | None
    threshold: float | Literal["auto"] | None
    correction: str | None
    tail_dial: float
    aim: str | None
    accept: bool | float | str | None
    label_filter: LabelFilter | None
    explain: bool


def ranking_options(given: RankingKeywords) -> RankingOptions:
    """Return options that were given as keyword arguments."""
    known = RankingKeywords.__annotations__
    if unknown := [name for name in given if name not in known]:
        raise RequestError(
            f"there is no option {unknown[0]!r}; expected some of {', '.join(known)}"
        )
    return RankingOptions(**given)
