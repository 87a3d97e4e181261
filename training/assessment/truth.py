"""The truth that a model is measured by: its splits checked, its labels in the model's order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.errors import DataError, count_of
from longtail.models.labels.catalogue import LabelCatalogue, row_in_use
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.data.dataset import Dataset

_UNSEEN = NO_LABEL - 1
_MAX_SHOWN = 5


def check_splits(
    catalogue: LabelCatalogue, dataset: Dataset, split_name: str, *, has_baselines: bool
) -> None:
    """Refuse a split that a model can't be measured on.

    Args:
        catalogue: The labels of the model.
        dataset: What is to be ranked.
        split_name: Its split.
        has_baselines: Whether the training split is read too, for baselines.
    """
    truth_of(catalogue, dataset, dataset.split(split_name).scan().labels)
    if has_baselines and "train" not in dataset.split_names:
        raise DataError(
            f"{dataset.folder}: no training documents for the baselines; evaluate with "
            "--no-baselines, or on the whole corpus"
        )
    if has_baselines:
        dataset.split("train").scan()


def in_order_of(
    catalogue: LabelCatalogue, dataset: Dataset, truth: Float32[csr_array, "document listed"]
) -> Float32[csr_array, "document label"]:
    """Return the label matrix with the columns of the model's catalogue.

    Labels that were merged into another one stand for that one, as in learning; other retired ones
    are left out, as no model answers them (`RetiredLabels` says how many).
    """
    rows = _rows_of(catalogue, dataset)
    if unknown := [dataset.labels[place].id for place in np.flatnonzero(rows == _UNSEEN).tolist()]:
        raise DataError(
            f"{dataset.folder}: {len(unknown)} of its labels are unknown to the model, the first "
            f"with id {unknown[0]!r}; expected the labels that it was trained with"
        )
    return _in_columns(truth, rows, len(catalogue))


def truth_of(
    catalogue: LabelCatalogue, dataset: Dataset, truth: Float32[csr_array, "document listed"]
) -> tuple[Float32[csr_array, "document label_or_unseen"], UnseenLabels | None]:
    """Return the label matrix that a model is measured by, and the labels that it lacks.

    The first columns are those of `in_order_of`. Each label of these documents that the model lacks
    has one after them: no ranking can name it, so that it counts as missed.
    """
    rows = _rows_of(catalogue, dataset)
    counts = np.bincount(truth.indices, minlength=len(rows))
    is_carried, is_unseen = counts > 0, (rows == _UNSEEN) & (counts > 0)
    num_unseen = int(np.count_nonzero(is_unseen))
    rows[rows == _UNSEEN] = NO_LABEL
    rows[is_unseen] = len(catalogue) + np.arange(num_unseen)
    found = _in_columns(truth, rows, len(catalogue) + num_unseen)
    if not num_unseen:
        return found, None
    names = [dataset.labels[place].name for place in np.flatnonzero(is_unseen).tolist()]
    if num_unseen == np.count_nonzero(is_carried):
        raise DataError(
            f"{dataset.folder}: got documents with {count_of(num_unseen, 'label')}, all unknown "
            f"to the model, such as {names[0]!r}; expected labels of its training, by their ids"
        )
    return found, UnseenLabels(num_unseen, int(counts[is_unseen].sum()), tuple(names[:_MAX_SHOWN]))


def _in_columns(
    truth: Float32[csr_array, "document listed"], rows: Int64[np.ndarray, listed], width: int
) -> Float32[csr_array, "document column"]:
    if np.array_equal(rows, np.arange(width)):
        return truth
    pairs = truth.tocoo()
    columns = rows[pairs.coords[1]]
    is_kept = columns != NO_LABEL
    places = (pairs.coords[0][is_kept], columns[is_kept])
    found = csr_array((pairs.data[is_kept], places), shape=(truth.shape[0], width))
    found.sum_duplicates()
    found.data[:] = 1  # two labels of a document may stand for the same one
    return found


@dataclass(frozen=True, slots=True)
class UnseenLabels:
    """Labels of measured documents that the model lacks.

    Attributes:
        num_labels: How many.
        num_missed: True pairs of a document and one of them.
        examples: The names of the first.
    """

    num_labels: int
    num_missed: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        """Return how they count, in a sentence."""
        more = ", ..." if self.num_labels > len(self.examples) else ""
        return (
            f"The model lacks {count_of(self.num_labels, 'label')} of the documents "
            f"({', '.join(map(repr, self.examples))}{more}): they count as missed, "
            f"{count_of(self.num_missed, 'time')}."
        )


@dataclass(frozen=True, slots=True)
class RetiredLabels:
    """Labels of measured documents that changes of the vocabulary took out of use.

    Attributes:
        num_replaced: Times that one stands for the label that it was merged into.
        num_left_out: Times that one is left out: it was dropped, or split into several.
    """

    num_replaced: int
    num_left_out: int

    @classmethod
    def of(
        cls,
        catalogue: LabelCatalogue,
        dataset: Dataset,
        truth: Float32[csr_array, "document listed"],
    ) -> RetiredLabels | None:
        """Return how many labels of documents are retired; None where none is."""
        if catalogue.in_use.all():
            return None
        rows = _rows_of(catalogue, dataset)
        own = _own_rows_of(catalogue, dataset)
        counts = np.bincount(truth.indices, minlength=len(rows))
        num_left_out = int(counts[rows == NO_LABEL].sum())
        num_retired = int(counts[rows != own].sum())
        return cls(num_retired - num_left_out, num_left_out) if num_retired else None

    def __str__(self) -> str:
        """Describe how they were treated, in a sentence."""
        return (
            f"Retired labels of the documents: {self.num_replaced:,} stand for the labels that "
            f"they were merged into, {self.num_left_out:,} that were dropped or split are left out."
        )


def _rows_of(catalogue: LabelCatalogue, dataset: Dataset) -> Int64[np.ndarray, listed]:
    """Return each dataset label's row in the catalogue; of a retired label, its replacement's.

    `NO_LABEL` where there is none, `_UNSEEN` for a label that the model lacks.
    """
    rows = _own_rows_of(catalogue, dataset)
    for place in np.flatnonzero((rows >= 0) & ~catalogue.in_use[rows.clip(0)]).tolist():
        row = row_in_use(catalogue, dataset.labels[place].id)
        rows[place] = NO_LABEL if row is None else row
    return rows


def _own_rows_of(catalogue: LabelCatalogue, dataset: Dataset) -> Int64[np.ndarray, listed]:
    own = (catalogue.row_of_id(label.id) for label in dataset.labels)
    return np.array([_UNSEEN if row is None else row for row in own], dtype=np.int64)
