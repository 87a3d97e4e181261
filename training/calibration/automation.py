"""What goes through without a person, by the promises of a model, and whether they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool

from longtail.models.scorers.promises import PRECISION_PROMISE, Promise
from longtail.training.calibration.promises import AnsweredDocuments, bands_by_name
from longtail.training.evaluation.by_frequency import ALL_LABELS
from longtail.training.evaluation.figures import new_figure
from longtail.training.evaluation.tables import NOT_MEASURED, Table, number_if_few
from longtail.training.evaluation.wilson import clustered_bounds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NOTE = (
    "Accepted labels of the default scorer by each promise: how many they are, which share of the "
    "documents' labels they find, the promised share as measured (of accepted labels that are "
    "right, or for recall of a document's labels that are accepted) with its 95 % interval "
    "(Wilson's, for as many labels as tell as much as these, since those of a document are alike), "
    "and whether the promise was kept: yes or no where the interval lies above or below it, else "
    "'about'. Of labels with a threshold that people have set nothing is promised."
)
SET_BY_PEOPLE = "threshold set by people"
"""In place of a band: labels that are in none."""


@dataclass(frozen=True, slots=True)
class KeptShare:
    """A promise in one band of rarity, or over all labels.

    Attributes:
        num_accepted: Accepted labels.
        num_right: Right ones among them.
        num_true: Labels of the band that the documents carry.
        share: The promised share as measured; None where nothing was accepted.
        lower: Lower bound of its 95 % interval.
        upper: Upper bound.
    """

    num_accepted: int
    num_right: int
    num_true: int
    share: float | None
    lower: float
    upper: float

    @property
    def found(self) -> float:
        """The share of the labels that the documents carry."""
        return self.num_right / max(1, self.num_true)

    @property
    def interval(self) -> str:
        """The 95 % interval in percent: "91.2 to 96.0"."""
        return f"{100 * self.lower:.1f} to {100 * self.upper:.1f}"

    def verdict(self, level: float) -> str:
        """Return whether a promise of this level was kept: "yes", "no", "about" or "-"."""
        if self.share is None:
            return NOT_MEASURED
        if self.lower >= level:
            return "yes"
        return "no" if self.upper < level else "about"


@dataclass(frozen=True, slots=True)
class KeptPromise:
    """What a promise lets through on measured documents.

    Attributes:
        promise: Its name.
        level: What is promised.
        num_documents: Documents measured on.
        num_served: Those with an accepted label.
        num_empty: Those without a true label.
        num_false_alarms: Those without a true label that got an accepted one.
        is_own: Whether it was found on these very documents.
        bands: By the name of each band that has a promise, and `ALL_LABELS`: all labels, and for
            recall those of these bands; and `SET_BY_PEOPLE` where thresholds are.
    """

    promise: str
    level: float
    num_documents: int
    num_served: int
    num_empty: int
    num_false_alarms: int
    is_own: bool
    bands: dict[str, KeptShare]

    def __str__(self) -> str:
        """Return the automation rate in a sentence."""
        found = self.bands[ALL_LABELS]
        if found.share is None:
            return f"By the promise {self.promise!r} no label goes through without a person."
        measured = "are right" if self.promise.startswith(PRECISION_PROMISE) else "is the recall"
        text = (
            f"By the promise {self.promise!r}, {_percent(found.found)} of the documents' labels"
            f"{number_if_few(found.num_true, 'label')} go through without a person, and "
            f"{_percent(self.num_served / self.num_documents)} of the documents"
            f"{number_if_few(self.num_documents)} have such a label; {_percent(found.share)} "
            f"{measured}{number_if_few(found.num_accepted, 'label')}, 95 % interval "
            f"{found.interval} %, kept: {found.verdict(self.level)}."
        )
        if self.num_empty:
            text += (
                f" Of {self.num_empty:,} documents without a label, {self.num_false_alarms:,} get "
                "an accepted one."
            )
        if self.is_own:
            text += " It was found on these very documents, so others may differ."
        return text

    def to_json(self) -> dict[str, object]:
        """Return everything as plain dictionaries; shares are fractions."""
        verdicts = {name: each.verdict(self.level) for name, each in self.bands.items()}
        return asdict(self) | {"kept": verdicts}


def measure_promise(
    documents: AnsweredDocuments, promise: Promise, *, is_own: bool = False
) -> KeptPromise:
    """Measure what a promise lets through, and whether it is kept.

    Args:
        documents: Answered by the scorer of the promise.
        promise: Of the model.
        is_own: Whether it was found on these documents.
    """
    numbers, marks = documents.bands_of(promise), documents.accepted_by(promise)
    named = enumerate(bands_by_name(promise).items())
    made = {name: number for number, (name, rule) in named if rule.thresholds}
    if promise.label_thresholds:
        made[SET_BY_PEOPLE] = -1
    meant = {name: numbers == number for name, number in made.items()}
    is_all = promise.measure == PRECISION_PROMISE
    meant[ALL_LABELS] = np.isin(numbers, list(made.values())) | is_all
    is_empty, is_served = documents.num_true == 0, marks.any(axis=1)
    return KeptPromise(
        promise.name, promise.level, len(marks), int(is_served.sum()),
        int(is_empty.sum()), int((is_empty & is_served).sum()), is_own,
        {name: _share(promise, documents, marks, is_in) for name, is_in in meant.items()},
    )  # fmt: skip


def _share(
    promise: Promise,
    documents: AnsweredDocuments,
    marks: Bool[np.ndarray, "document k"],
    is_in: Bool[np.ndarray, label_or_unseen],
) -> KeptShare:
    """Return what became of a promise for some labels, with the documents as clusters."""
    is_own = marks & is_in[documents.labels]
    accepted, right = is_own.sum(axis=1), (is_own & documents.is_right).sum(axis=1)
    true = documents.num_true_of(is_in)
    part, whole = right.astype(np.float64), accepted.astype(np.float64)
    if promise.measure != PRECISION_PROMISE:
        part, whole = right / np.maximum(true, 1), (true > 0).astype(np.float64)
    share = float(part.sum() / whole.sum()) if accepted.any() else None
    numbers = (int(accepted.sum()), int(right.sum()), int(true.sum()))
    return KeptShare(*numbers, share, *clustered_bounds(part, whole))


def automation_table(kept: Sequence[KeptPromise]) -> Table:
    """Return a table with a row for each promise and band."""
    header = ["promise", "training documents", "accepted", "found", "as promised", "95 %", "kept"]
    rows = []
    for each in kept:
        for name, band in each.bands.items():
            measured = [NOT_MEASURED] * 2
            if band.share is not None:
                measured = [_percent(band.share), band.interval]
            counts = [f"{band.num_accepted:,}", _percent(band.found)]
            rows.append([each.promise, name, *counts, *measured, band.verdict(each.level)])
    return Table("Promises", _NOTE, (header, rows))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def draw_automation(kept: Sequence[KeptPromise]) -> Figure:
    """Draw the share of labels and documents that go through, over the promised precision."""
    figure = new_figure(5.0, 3.6)
    axes = figure.subplots()
    points = sorted(
        (100 * each.level, 100 * each.bands[ALL_LABELS].found,
         100 * each.num_served / each.num_documents)
        for each in kept if each.promise.startswith(PRECISION_PROMISE)
    )  # fmt: skip
    levels, labels, served = np.reshape(points, (-1, 3)).T
    axes.plot(levels, labels, "-o", color="#0072B2", label="labels found")
    axes.plot(levels, served, "--s", color="#D55E00", label="documents with an accepted label")
    axes.set_xlabel("promised precision, %")
    axes.set_ylabel("go through without a person, %")
    axes.set_ylim(0, 100)
    axes.grid(axis="y", alpha=0.3)
    axes.legend()
    return figure
