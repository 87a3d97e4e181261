"""The truth that a model is measured by: its splits checked, its labels in the model's order."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32
from scipy.sparse import csr_array

from models.errors import DataError
from models.labels.catalogue import LabelCatalogue
from training.data.dataset import Dataset


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

    Raises:
        DataError: The dataset has labels that the model doesn't know.
    """
    ids = [label.id for label in dataset.labels]
    if ids == [label.id for label in catalogue]:
        return truth
    row_of = {label.id: row for row, label in enumerate(catalogue)}
    if unknown := [name for name in ids if name not in row_of]:
        raise DataError(
            f"{dataset.folder}: {len(unknown)} of its labels are unknown to the model, the first "
            f"with id {unknown[0]!r}; evaluate on data with the labels that it was trained with"
        )
    pairs = truth.tocoo()
    columns = np.array([row_of[name] for name in ids])[pairs.coords[1]]
    shape = (truth.shape[0], len(catalogue))
    return csr_array((pairs.data, (pairs.coords[0], columns)), shape=shape)
