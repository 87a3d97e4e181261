"""The parts of a model that feedback changes: sparse rows, neighbours, labels and their vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64
from scipy.sparse import csr_array, vstack

from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.labels.text import pseudo_description
from longtail.models.memory.memory import NeighbourMemory
from longtail.models.scorers.sparse import SparseModel
from longtail.training.configuration.sections import DescriptionConfig, SparseConfig
from longtail.training.sparse.descriptions import keywords_of_labels
from longtail.training.sparse.fit import fit_label_rows
from longtail.training.updating.documents import ChangedDocuments


def refit_sparse(
    model: SparseModel, changed: ChangedDocuments, settings: Mapping[str, Any], folder: Path
) -> SparseModel:
    """Fit the rows of touched labels on all documents; the others are the same to the bit.

    Args:
        model: The classifiers that there are.
        changed: The documents.
        settings: Of the training of the model, from its manifest.
        folder: For the blocks of labels.

    Returns:
        The model; a touched label without documents has no row.
    """
    touched, after = changed.touched, changed.after
    fitted = touched[changed.counts[touched] > 0]
    config = SparseConfig.model_validate(settings["sparse"])
    weights, bias = fit_label_rows(
        after.features, after.labels, fitted, config, seed=settings["seed"], folder=folder
    )
    kept = np.flatnonzero(~np.isin(model.labels, touched))
    labels = np.concatenate([model.labels[kept], fitted])
    order = np.argsort(labels)
    rows = csr_array(vstack([model.weights[kept], weights], format="csr")[order])
    return SparseModel(
        model.tfidf, rows, np.concatenate([model.bias[kept], bias])[order], labels[order]
    )


def num_moved_rows(
    before: SparseModel, after: SparseModel, touched: Int64[np.ndarray, touched]
) -> int:
    """Return how many labels that were not touched have other weights, of any bit, or another row.

    Args:
        before: The classifiers that there were.
        after: Those that there are now.
        touched: Labels that may differ.
    """
    labels = np.setdiff1d(np.union1d(before.labels, after.labels), touched)
    rows = [_row_bytes(model, labels) for model in (before, after)]
    return sum(one != other for one, other in zip(*rows, strict=True))


def _row_bytes(
    model: SparseModel, labels: Int64[np.ndarray, label]
) -> list[tuple[bytes, bytes, bytes] | None]:
    row_of = {label: row for row, label in enumerate(model.labels.tolist())}
    found: list[tuple[bytes, bytes, bytes] | None] = []
    for label in labels.tolist():
        if (row := row_of.get(label)) is None:
            found.append(None)
            continue
        part = slice(*model.weights.indptr[row : row + 2])
        columns = model.weights.indices[part].astype(np.int64).tobytes()
        found.append((columns, model.weights.data[part].tobytes(), model.bias[row].tobytes()))
    return found


def update_neighbours(memory: NeighbourMemory, changed: ChangedDocuments) -> NeighbourMemory:
    """Correct the labels of remembered documents, forget those without any, and add the new ones.

    Args:
        memory: Of the model before.
        changed: The documents.
    """
    num_old = len(memory.ids)
    labels = changed.after.labels
    kept = np.flatnonzero(np.diff(labels[:num_old].indptr))
    corrected = replace(
        memory,
        documents=csr_array(memory.documents[kept]),
        labels=csr_array(labels[kept]),
        ids=tuple(memory.ids[row] for row in kept.tolist()),
    )
    ids = [text.document_id for text in changed.texts[: changed.num_new]]
    return corrected.with_documents(
        csr_array(changed.after.features[num_old:]), csr_array(labels[num_old:]), ids
    )


def update_catalogue(
    catalogue: LabelCatalogue,
    sparse: SparseModel,
    changed: ChangedDocuments,
    settings: Mapping[str, Any],
    num_new: int,
) -> tuple[LabelCatalogue, Int64[np.ndarray, described]]:
    """Return the labels with their numbers of documents, and those that are described anew.

    A label is described anew by its keywords if it is new or had no documents: the texts, and the
    vectors, of all others stay.

    Args:
        catalogue: The labels, new ones last.
        sparse: The new classifiers.
        changed: The documents.
        settings: Of the training of the model.
        num_new: New labels.
    """
    counts = catalogue.training_counts
    had_none = counts == 0
    counts[changed.touched] = changed.counts[changed.touched]
    is_new = np.arange(len(catalogue)) >= len(catalogue) - num_new
    described = np.flatnonzero(is_new | (had_none & (counts > 0))).astype(np.int64)
    rows = np.flatnonzero(np.isin(sparse.labels, described))
    own = SparseModel(
        sparse.tfidf, csr_array(sparse.weights[rows]), sparse.bias[rows], sparse.labels[rows]
    )
    config = DescriptionConfig.model_validate(settings.get("descriptions", {}))
    keywords = keywords_of_labels(own, catalogue, config)
    texts = [label.pseudo_description for label in catalogue]
    for label in described.tolist():
        texts[label] = pseudo_description(catalogue[label], keywords[label])
    updated = catalogue.replaced(training_count=counts.tolist(), pseudo_description=texts)
    return updated, described
