"""The truth that a model is measured by: its splits checked, its labels in the model's order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.models.errors import DataError
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.labels.changes.retired import row_in_use
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.data.dataset import Dataset


def check_splits(
    catalogue: LabelCatalogue, dataset: Dataset, split_name: str, *, has_baselines: bool
) -> None:
    """Refuse a split that a model can't be measured on.

    Args:
        catalogue: The labels of the model.
        dataset: What is to be ranked.
        split_name: Its split.
        has_baselines: Whether the training split is read too, for baselines.

    Raises:
        DataError: A split is missing or has broken lines, or has labels unknown to the model.
    """
    splits = [dataset.split(split_name)]
    if has_baselines and "train" not in dataset.split_names:
        raise DataError(
            f"{dataset.folder}: no training documents for the baselines; evaluate with "
            "--no-baselines, or on the whole corpus"
        )
    if has_baselines:
        splits.append(dataset.split("train"))
    for split in splits:  # what a scan finds is kept, so none is read twice
        in_order_of(catalogue, dataset, split.scan().labels)


def in_order_of(
    catalogue: LabelCatalogue, dataset: Dataset, truth: Float32[csr_array, "document listed"]
) -> Float32[csr_array, "document label"]:
    """Return the label matrix with the columns of the model's catalogue.

    Labels that were merged into another one stand for that one, as in learning; other retired ones
    are left out, as no model answers them (`RetiredLabels` says how many).

    Raises:
        DataError: The dataset has labels that the model doesn't know.
    """
    rows = _rows_of(catalogue, dataset)
    if np.array_equal(rows, np.arange(len(catalogue))):
        return truth
    pairs = truth.tocoo()
    columns = rows[pairs.coords[1]]
    is_kept = columns != NO_LABEL
    places = (pairs.coords[0][is_kept], columns[is_kept])
    found = csr_array((pairs.data[is_kept], places), shape=(truth.shape[0], len(catalogue)))
    found.sum_duplicates()
    found.data[:] = 1  # two labels of a document may stand for the same one
    return found


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
        """Return how many labels of documents are retired; None where none is.

        Raises:
            DataError: The dataset has labels that the model doesn't know.
        """
        if not catalogue.is_retired.any():
            return None
        rows = _rows_of(catalogue, dataset)
        own = [catalogue.row_of_id(label.id) for label in dataset.labels]
        counts = np.bincount(truth.tocoo().coords[1], minlength=len(rows))
        num_left_out = int(counts[rows == NO_LABEL].sum())
        num_retired = int(counts[rows != np.array(own, dtype=np.int64)].sum())
        return cls(num_retired - num_left_out, num_left_out) if num_retired else None

    def __str__(self) -> str:
        """Return what was done with them, in a sentence."""
        return (
            f"Retired labels of the documents: {self.num_replaced:,} stand for the labels that "
            f"they were merged into, {self.num_left_out:,} that were dropped or split are left out."
        )


def _rows_of(catalogue: LabelCatalogue, dataset: Dataset) -> Int64[np.ndarray, listed]:
    """Return the row of each label of a dataset that is in use, `NO_LABEL` for one left out.

    Raises:
        DataError: The dataset has labels that the model doesn't know.
    """
    ids = [label.id for label in dataset.labels]
    own = [catalogue.row_of_id(name) for name in ids]
    if unknown := [name for name, row in zip(ids, own, strict=True) if row is None]:
        raise DataError(
            f"{dataset.folder}: {len(unknown)} of its labels are unknown to the model, the first "
            f"with id {unknown[0]!r}; evaluate on data with the labels that it was trained with"
        )
    rows = np.array(own, dtype=np.int64)
    for place in np.flatnonzero(catalogue.is_retired[rows]).tolist():
        row = row_in_use(catalogue, ids[place])
        rows[place] = NO_LABEL if row is None else row
    return rows
