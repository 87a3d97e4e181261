"""Promises: which labels of an answer go through without a person, and what holds of them.

A promise accepts labels by their calibrated probability, with thresholds for each band of rarity;
labels with a threshold that people have set are accepted from it on, and are in no band.
`longtail.training.calibration.promises` finds the thresholds, and says what is guaranteed.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from longtail.models.errors import RequestError
from longtail.models.files.json_text import parse_own_json

PROMISES_NAME = "promises.json"
"""Of the file of a bundle that holds its promises."""
Measure = Literal["precision", "recall"]
PRECISION_PROMISE: Measure = "precision"
RECALL_PROMISE: Measure = "recall"
Accept = bool | float | str
"""How a query names a promise: true is the default one, a number a precision, else its name."""


@dataclass(frozen=True, slots=True)
class BandRule:
    """When a promise accepts a label of one band of rarity.

    Attributes:
        least: Fewest training documents of a label of the band; it ends where the next one begins.
        thresholds: Least probability of an accepted label: of the best label of the band in a text,
            the second best, and so on, rising. Labels after these are not accepted.
        num_accepted: Labels that the rule accepts in the documents that it was found on.
        num_right: Right labels among them.
        refusal: Why the data support no promise; empty where there are thresholds.
    """

    least: int
    thresholds: tuple[float, ...]
    num_accepted: int = 0
    num_right: int = 0
    refusal: str = ""

    def __post_init__(self) -> None:
        """Refuse what is no rule.

        Raises:
            ValueError: A number is out of its range, or of another type.
        """
        counts = (self.least, self.num_accepted, self.num_right)
        are_shares = all(type(x) is float and 0 <= x <= 1 for x in self.thresholds)
        if not are_shares or any(type(x) is not int or x < 0 for x in counts):
            raise ValueError(f"{self}: expected thresholds from 0 to 1, and counts from 0")


@dataclass(frozen=True, slots=True)
class Promise:
    """What is promised of accepted labels, and which labels are accepted.

    Attributes:
        measure: "precision": of the accepted labels of each band, at least the share `level` is
            right; "recall": of the labels of a band that a text carries, at least the share `level`
            is accepted, in the mean over texts.
        level: Between 0 and 1.
        confidence: Probability that this holds for all bands with thresholds at once.
        scorer: The scorer whose probabilities are meant.
        num_documents: Documents that the rule was found on.
        bands: In the order of their training documents; the first begins at 0.
        label_thresholds: Least probability of an accepted label, by its row in the catalogue, for
            labels whose threshold people have set: nothing is promised of these.
        found_on: Fingerprint of the corpus and name of the split; empty where it is not known.
    """

    measure: Measure
    level: float
    confidence: float
    scorer: str
    num_documents: int
    bands: tuple[BandRule, ...]
    label_thresholds: Mapping[int, float] = field(default_factory=dict)
    found_on: str = ""

    def __post_init__(self) -> None:
        """Refuse what is no promise.

        Raises:
            ValueError: The bands are not in order, or a field is out of its range.
        """
        shares = (self.level, self.confidence)
        if not all(type(x) is float and 0 < x < 1 for x in shares):
            raise ValueError(f"level and confidence {shares}: expected numbers between 0 and 1")
        least = [band.least for band in self.bands]
        if least[:1] != [0] or least != sorted(set(least)):
            raise ValueError(f"bands begin at {least}; expected rising numbers from 0")
        if self.measure not in get_args(Measure) or type(self.num_documents) is not int:
            raise ValueError(f"measure {self.measure!r}, documents {self.num_documents!r}")
        for row, least_of_label in self.label_thresholds.items():
            if row < 0 or type(least_of_label) is not float or not 0 <= least_of_label <= 1:
                raise ValueError(f"row {row}: threshold {least_of_label!r}, expected 0 to 1")

    @property
    def name(self) -> str:
        """As queries name it: "precision 0.95"."""
        return f"{self.measure} {self.level:g}"

    @property
    def can_accept(self) -> bool:
        """Whether it accepts any label, whatever the text."""
        return bool(self.label_thresholds) or any(band.thresholds for band in self.bands)

    def accepted(
        self,
        rows: Sequence[int],
        counts: Sequence[int],
        probabilities: Sequence[float | None],
    ) -> tuple[bool, ...]:
        """Return which labels of a text are accepted.

        Args:
            rows: Of the labels in the catalogue, the best label first.
            counts: Training documents of the labels.
            probabilities: Of the labels, as calibrated.
        """
        starts = [band.least for band in self.bands]
        places = [0] * len(starts)
        marks = []
        for row, count, probability in zip(rows, counts, probabilities, strict=True):
            if row in self.label_thresholds:
                marks.append((probability or 0.0) >= self.label_thresholds[row])
                continue
            number = bisect_right(starts, count) - 1
            thresholds, place = self.bands[number].thresholds, places[number]
            places[number] += 1
            is_promised = place < len(thresholds)
            marks.append(is_promised and (probability or 0.0) >= thresholds[place])
        return tuple(marks)


def promise_of(promises: Sequence[Promise], scorer: str, accept: Accept) -> Promise:
    """Return the promise that a query names.

    Args:
        promises: Of the model; the first one of a scorer is its default.
        scorer: The one that ranks.
        accept: The name.

    Raises:
        RequestError: The model has no such promise for the scorer.
    """
    own = [each for each in promises if each.scorer == scorer]
    if accept is True and own:
        return own[0]
    is_number = isinstance(accept, float | int)
    wanted = f"{PRECISION_PROMISE} {accept:g}" if is_number else accept
    for each in own:
        if each.name == wanted:
            return each
    there = ", ".join(f"{each.name!r} of {each.scorer}" for each in promises)
    remedy = f"it has {there}; ask for one of these, or store it" if there else "store it"
    shown = "true" if accept is True else repr(accept)
    raise RequestError(
        f"accept is {shown}, and the model has no such promise for scorer {scorer!r}; "
        f"{remedy} with 'longtail threshold'"
    )


def promises_to_json(promises: Sequence[Promise]) -> str:
    """Return the content of the file `PROMISES_NAME`."""
    return json.dumps([asdict(each) for each in promises], indent=1, sort_keys=True) + "\n"


def promises_from_json(text: str) -> tuple[Promise, ...]:
    """Read what `promises_to_json` wrote.

    Raises:
        ValueError: It is no JSON, or a number is out of its range.
        TypeError: A field is missing, unknown or of another type.
    """
    content = parse_own_json(text)
    if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
        raise TypeError(f"{PROMISES_NAME} is {text[:40]!r}, expected a list of promises")
    return tuple(map(_promise_of, content))


def _promise_of(content: dict[str, Any]) -> Promise:
    own = {int(row): least for row, least in content["label_thresholds"].items()}
    bands = tuple(map(_band_of, content["bands"]))
    return Promise(**content | {"bands": bands, "label_thresholds": own})


def _band_of(content: dict[str, Any]) -> BandRule:
    return BandRule(**content | {"thresholds": tuple(content["thresholds"])})
