"""How often each label is predicted and right in some documents, with Wilson's 95 % intervals."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float64, Int64
from pydantic import Field

from longtail.models.bundle.manifest import Manifest
from longtail.models.files.durable import MANY_ELEMENTS
from longtail.models.files.typed_json import json_forms
from longtail.models.fitted.part import FittedPart, HasFitted

_Z2 = 3.841458820694124
"""The 95 % quantile of chi squared with one degree of freedom."""
_Count = Annotated[int, Field(ge=0)]
_Rows = list[tuple[_Count, _Count, _Count, _Count]]
_, _rows_from_json = json_forms(_Rows, max_elements=MANY_ELEMENTS)


@dataclass(frozen=True, slots=True)
class LabelFigures:
    """Counts of documents for each label of a catalogue.

    Attributes:
        num_true: Documents that carry the label.
        num_predicted: Documents that it is predicted for.
        num_right: Documents that carry it and that it is predicted for.
    """

    num_true: Int64[np.ndarray, label]
    num_predicted: Int64[np.ndarray, label]
    num_right: Int64[np.ndarray, label]

    def of_labels(self, rows: Int64[np.ndarray, row] | slice) -> LabelFigures:
        """Return the figures of some labels."""
        return LabelFigures(self.num_true[rows], self.num_predicted[rows], self.num_right[rows])

    @property
    def num_either(self) -> Int64[np.ndarray, label]:
        """Documents that carry the label or that it is predicted for."""
        either: Int64[np.ndarray, label] = self.num_true + self.num_predicted - self.num_right
        return either

    def shares(self) -> dict[str, Float64[np.ndarray, "label 3"]]:
        """Return precision, recall and F1 with lower and upper bound; nan where nothing is counted.

        F1 is 2 J / (1 + J) with the share J of right ones among the documents that carry the label
        or get it, and so are its bounds.
        """
        jaccard = _bounded(self.num_right, self.num_either)
        return {
            "precision": _bounded(self.num_right, self.num_predicted),
            "recall": _bounded(self.num_right, self.num_true),
            "f1": 2 * jaccard / (1 + jaccard),
        }

    def to_json(self) -> str:
        """Return a JSON list with [row, true, predicted, right] for each label with a document."""
        rows = np.flatnonzero(self.num_either)
        counts = self.of_labels(rows)
        columns = (rows, counts.num_true, counts.num_predicted, counts.num_right)
        return json.dumps(np.stack(columns, axis=1).tolist(), separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, text: str, num_labels: int) -> LabelFigures:
        """Read the result of `to_json`."""
        read = np.array(_rows_from_json(text), dtype=np.int64).reshape(-1, 4)
        rows, true, predicted, right = read.T
        if (np.diff(rows, append=num_labels) <= 0).any() or (
            right > np.minimum(true, predicted)
        ).any():
            raise ValueError(
                f"expected rising rows below {num_labels}, and at most as many right documents as "
                "true and predicted ones"
            )
        found = np.zeros((3, num_labels), dtype=np.int64)
        found[:, rows] = true, predicted, right
        return cls(*found)


def wilson_bounds(
    part: Float64[np.ndarray, "*shape"] | Int64[np.ndarray, "*shape"],
    whole: Float64[np.ndarray, "*shape"] | Int64[np.ndarray, "*shape"],
) -> tuple[Float64[np.ndarray, "*shape"], Float64[np.ndarray, "*shape"]]:
    """Return the bounds of Wilson's (1927) 95 % interval of shares; 0 and 1 where the whole is 0.

    Args:
        part: How many have a property.
        whole: How many there are.
    """
    size = np.maximum(whole, 1e-12)
    share = part / size
    middle = (share + _Z2 / (2 * size)) / (1 + _Z2 / size)
    spread = np.sqrt(_Z2 * share * (1 - share) / size + (_Z2 / (2 * size)) ** 2)
    spread /= 1 + _Z2 / size
    return np.maximum(middle - spread, 0.0), np.minimum(middle + spread, 1.0)


def _bounded(
    part: Int64[np.ndarray, label], whole: Int64[np.ndarray, label]
) -> Float64[np.ndarray, "label 3"]:
    """Return a share, its lower and its upper bound."""
    columns = np.stack([part / np.maximum(whole, 1), *wilson_bounds(part, whole)], axis=1)
    return np.where(whole[:, None] > 0, columns, np.nan)


class LabelFiguresPart(FittedPart[LabelFigures | None]):
    """The figures of labels on the dev split, predicted from the default scorer's threshold on."""

    name = "label_figures"

    def to_json(self, value: LabelFigures | None) -> str:
        """Return the text of its file."""
        assert value is not None  # else there is no file
        return value.to_json()

    def from_json(self, text: str, num_labels: int) -> LabelFigures:
        """Read the result of `to_json` (see `LabelFigures.from_json`)."""
        return LabelFigures.from_json(text, num_labels)

    def listed(self, manifest: Manifest | None, model: HasFitted | None) -> dict[str, Any]:
        """Return whether labels are listed with their figures."""
        del manifest
        return {"has_label_quality": model is not None and self.of(model) is not None}


LABEL_FIGURES = LabelFiguresPart()
