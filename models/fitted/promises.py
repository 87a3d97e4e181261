"""Promises: which labels of an answer go through without a person, and what holds of them.

A promise accepts labels by their calibrated probability, with thresholds for each band of rarity;
labels with a threshold that people have set are accepted from it on, and are in no band.
`longtail.training.fitted.promises` finds the thresholds, and says what is guaranteed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64
from pydantic import BeforeValidator, ConfigDict, Field

from longtail.models.bundle.manifest import Manifest
from longtail.models.errors import RequestError
from longtail.models.files.typed_json import json_forms
from longtail.models.fitted.part import Answered, Asked, FittedPart, HasFitted
from longtail.models.options import PROPENSITY, CoreOptions, Option, as_one_error
from longtail.models.parts.model_parts import ModelParts
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.results import UNLIKE_TRAINING, Abstention, Prediction

Measure = Literal["precision", "recall"]
PRECISION_PROMISE: Measure = "precision"
Accept = bool | float | str
"""How a query names a promise: true is the default one, a number a precision, else its name."""
_Share = Annotated[float, Field(ge=0, le=1)]
_Count = Annotated[int, Field(ge=0)]
_STRICT = ConfigDict(extra="forbid")


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

    __pydantic_config__: ClassVar = _STRICT
    least: _Count
    thresholds: tuple[_Share, ...]
    num_accepted: _Count = 0
    num_right: _Count = 0
    refusal: str = ""


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
        bands: In the order of their training documents; the first begins at 0. A single one holds
            all labels: then the promise is of the whole only, and may be broken in a band.
        label_thresholds: Least probability of an accepted label, by its row in the catalogue, for
            labels whose threshold people have set: nothing is promised of these.
        found_on: Fingerprint of the corpus and name of the split; empty where it is not known.
    """

    __pydantic_config__: ClassVar = _STRICT
    measure: Measure
    level: _Share
    confidence: _Share
    scorer: str
    num_documents: _Count
    bands: tuple[BandRule, ...]
    label_thresholds: Mapping[_Count, _Share] = field(default_factory=dict)
    found_on: str = ""

    def __post_init__(self) -> None:
        """Refuse bands that are not in order."""
        least = [band.least for band in self.bands]
        if least[:1] != [0] or least != sorted(set(least)):
            raise ValueError(f"bands begin at {least}; expected rising numbers from 0")

    @property
    def name(self) -> str:
        """As queries name it: "precision 0.95"; one of the whole only: "precision 0.95 overall"."""
        return f"{self.measure} {self.level:g}{' overall' * (len(self.bands) == 1)}"

    @property
    def can_accept(self) -> bool:
        """Whether it accepts any label, whatever the text."""
        return bool(self.label_thresholds) or any(band.thresholds for band in self.bands)

    def bands_of(
        self, labels: Int64[np.ndarray, "*shape"], counts: Int64[np.ndarray, "*shape"]
    ) -> Int64[np.ndarray, "*shape"]:
        """Return the number of the band of each label; -1 for a label that is in none.

        Args:
            labels: Rows in the catalogue; `NO_LABEL` is in no band.
            counts: Training documents of these labels.
        """
        found = np.searchsorted([band.least for band in self.bands], counts, side="right") - 1
        is_in_none = (labels == NO_LABEL) | ~np.isnan(self._set_by_people(labels))
        return np.where(is_in_none, -1, found)

    def _set_by_people(self, labels: Int64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
        """Return the thresholds that people have set; nan for the other labels."""
        if not self.label_thresholds:
            return np.full(labels.shape, np.nan)
        own = [self.label_thresholds.get(label, np.nan) for label in labels.ravel().tolist()]
        return np.array(own).reshape(labels.shape)

    def accepted(
        self,
        labels: Int64[np.ndarray, "text k"],
        counts: Int64[np.ndarray, "text k"],
        probabilities: Float64[np.ndarray, "text k"],
    ) -> Bool[np.ndarray, "text k"]:
        """Return which labels of each text are accepted.

        Args:
            labels: Rows in the catalogue, the best label of a text first.
            counts: Training documents of these labels.
            probabilities: As calibrated.
        """
        numbers = self.bands_of(labels, counts)
        least = self._set_by_people(labels)  # nothing is at least nan
        for number, rule in enumerate(self.bands):
            is_in = numbers == number
            places = np.minimum(np.cumsum(is_in, axis=1) - 1, len(rule.thresholds))
            least = np.where(is_in, np.append(rule.thresholds, np.nan)[places], least)
        accepted: Bool[np.ndarray, "text k"] = probabilities >= least
        return accepted


def promise_of(promises: Sequence[Promise], scorer: str, accept: Accept) -> Promise:
    """Return the promise that a query names.

    Args:
        promises: The model's promises; the first one of a scorer is its default.
        scorer: The one that ranks.
        accept: The name.
    """
    own = [each for each in promises if each.scorer == scorer]
    if accept is True and own:
        return own[0]
    is_number = isinstance(accept, float | int)
    wanted = f"{PRECISION_PROMISE} {accept:g}" if is_number else accept
    for each in own:
        if wanted in {each.name, each.name.removesuffix(" overall")}:
            return each
    there = ", ".join(f"{each.name!r} of {each.scorer}" for each in promises)
    remedy = f"it has {there}; ask for one of these, or store it" if there else "store it"
    shown = "true" if accept is True else repr(accept)
    raise RequestError(
        f"accept is {shown}, and the model has no such promise for scorer {scorer!r}; "
        f"{remedy} with 'longtail threshold'"
    )


def _accept_of(value: object) -> object:
    """Return what a string means: a query and a command line have nothing else."""
    if not isinstance(value, str):
        return value
    with suppress(ValueError):
        return float(value)
    return {"true": True, "false": False}.get(value, value)


def _refused(asked: CoreOptions) -> str:
    accept = getattr(asked, ACCEPT.name)
    if accept is False or asked.aim != PROPENSITY:
        return ""
    return "Give only one of 'aim' and 'accept', which goes by probability"


ACCEPT = Option(
    "accept",
    Annotated[
        bool | float | Annotated[str, Field(max_length=100)],
        BeforeValidator(_accept_of),
        as_one_error(
            "accept", "Give true, a precision such as 0.95, or a name such as 'recall 0.9'"
        ),
    ],
    "Mark each label as `accepted` or not, by a promise that the model keeps: a number, the "
    "precision; its name, such as `recall 0.9`; or true, the model's default promise "
    "(`GET /v1/models` lists them). The ranking stays as it is. The promise is about all labels: "
    "of those that a filter leaves, nothing is promised. Not together with `aim`, `tail_dial` or "
    "another `correction`.",
    is_of_scheme=True,
    refused=_refused,
)


class PromisesPart(FittedPart[tuple[Promise, ...]]):
    """Marks which labels of an answer are accepted; the first promise of a scorer is its default.

    `longtail threshold` finds them.
    """

    name = "promises"
    option = ACCEPT
    remedy = "store a promise with 'longtail threshold'"
    forms = json_forms(tuple[Promise, ...])
    lacking = ()
    if_lost = (
        "the new version makes no promises: those of bundle %s hold for its own labels and "
        "scores; run 'longtail threshold' on the new one"
    )

    def problem(self, value: tuple[Promise, ...], parts: ModelParts) -> str:
        """Return that a scorer has no probabilities, or that there is no such label."""
        if odd := {each.scorer for each in value}.difference(parts.calibrations):
            return f"promises of {sorted(odd)}, expected those of calibrated scorers"
        row = max((row for each in value for row in each.label_thresholds), default=-1)
        most = len(parts.catalogue)
        return f"a threshold of label row {row}, expected less than {most}" if row >= most else ""

    def prepared(self, value: tuple[Promise, ...], asked: Asked) -> Asked:
        """Return the same query."""
        accept = asked.options.of_part(ACCEPT.name)
        if accept is False:
            return asked
        promise_of(value, asked.scorer, accept)
        if asked.calibration is None:
            raise RequestError(
                f"accept is {accept!r} with a tail dial or without the scorer's correction, which "
                "leaves no probabilities to accept labels by; leave out one of the two"
            )
        return asked

    def annotated(self, value: tuple[Promise, ...], answered: Answered) -> Answered:
        """Return the labels, marked where the promise accepts them."""
        accept = answered.asked.options.of_part(ACCEPT.name)
        if accept is False:
            return answered
        assert answered.probabilities is not None  # as was checked
        promise = promise_of(value, answered.asked.scorer, accept)
        counts = answered.asked.training_counts[answered.labels]
        marks = promise.accepted(answered.labels, counts, answered.probabilities)
        return replace(answered, accepted=marks)

    def concluded(
        self, value: tuple[Promise, ...], predictions: list[Prediction], answered: Answered
    ) -> list[Prediction]:
        """Return the predictions with the reason why one has no accepted label."""
        del value
        return predictions if answered.accepted is None else list(map(_concluded, predictions))

    def listed(self, manifest: Manifest | None, model: HasFitted | None) -> dict[str, Any]:
        """Return the names of the promises of each scorer, the default first."""
        del manifest
        names: dict[str, list[str]] = {}
        for promise in self.of(model) if model else ():
            names.setdefault(promise.scorer, []).append(promise.name)
        return {"promises": names}

    def card(self, value: tuple[Promise, ...]) -> Iterator[str]:
        """Yield the names of the promises of each scorer."""
        for scorer in dict.fromkeys(each.scorer for each in value):
            own = ", ".join(
                f"{x.name} (confidence {x.confidence:g})" for x in value if x.scorer == scorer
            )
            yield f"Promises by which labels of {scorer} can go through without a person: {own}."


def _concluded(prediction: Prediction) -> Prediction:
    reason = _abstention(prediction)
    labels = prediction.labels
    if reason is not None and any(label.accepted for label in labels):
        labels = tuple(replace(label, accepted=False) for label in labels)
    return replace(prediction, labels=labels, abstained_because=reason)


def _abstention(prediction: Prediction) -> Abstention | None:
    """Return why no label is accepted, whatever the promise says; None where one is."""
    if not prediction.known_tokens:
        return "no-known-word"
    if any(each.code == UNLIKE_TRAINING for each in prediction.warnings):
        return "unlike-training"
    return None if any(label.accepted for label in prediction.labels) else "below-threshold"


PROMISES = PromisesPart()
