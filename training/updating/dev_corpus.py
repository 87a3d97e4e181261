"""What a learned version is calibrated on: documents of the corpus's dev split, and new ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from longtail.models.files.durable import make_private_folder, write_lines_durably
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.lexical.matcher import FindHistory
from longtail.models.lexical.name_model import NameModel
from longtail.models.parts.model_parts import ModelParts
from longtail.models.scorers.sparse import SparseModel
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.updating.labels import SaidOfText
from longtail.training.updating.texts import dev_rows

if TYPE_CHECKING:  # bring PyTorch, which a model without a dense half does not need
    from longtail.models.parts.dense_parts import DenseParts
    from longtail.models.scorers.linear import LinearModel


def corpus_part(parts: ModelParts, corpus: Dataset) -> ModelParts:
    """Return the part of a model that scores the labels of a corpus, which come first in it.

    Nobody has looked for labels that were added later in the dev documents of the corpus: they
    would count as wrong where they are right.

    Args:
        parts: The model.
        corpus: That it was trained on.
    """
    num_labels = len(corpus.labels)
    if num_labels == len(parts.catalogue):
        return parts
    memory = parts.neighbours
    return replace(
        parts,
        catalogue=parts.catalogue.first(num_labels),
        sparse=_first_of_sparse(parts.sparse, num_labels),
        dense=None if parts.dense is None else _first_of_dense(parts.dense, num_labels),
        names=None if parts.names is None else _first_of_names(parts.names, num_labels),
        neighbours=None if memory is None else memory.with_first_labels(num_labels),
    )


def _first_of_sparse(model: SparseModel, num_labels: int) -> SparseModel:
    rows = _rows_below(model.labels, num_labels)
    return replace(
        model,
        weights=csr_array(model.weights[rows]),
        bias=model.bias[rows],
        labels=model.labels[rows],
    )


def _first_of_dense(dense: DenseParts, num_labels: int) -> DenseParts:
    classifier, linear = dense.classifier, dense.linear
    if linear is not None:  # its tree has no other labels than these
        linear = replace(linear, model=_first_of_linear(linear.model, num_labels))
    return replace(
        dense,
        label_vectors=dense.label_vectors[:num_labels],
        classifier=None if classifier is None else _first_of_linear(classifier, num_labels),
        linear=linear,
    )


def _first_of_linear(model: LinearModel, num_labels: int) -> LinearModel:
    rows = _rows_below(model.labels, num_labels)
    return replace(
        model,
        weight=model.weight[rows],
        bias=model.bias[rows],
        labels=model.labels[rows],
    )


def _first_of_names(names: NameModel, num_labels: int) -> NameModel:
    return replace(
        names,
        catalogue=LabelCatalogue(islice(names.catalogue, num_labels)),
        history=FindHistory(names.history.found[:num_labels], names.history.right[:num_labels]),
    )


def _rows_below(rising: np.ndarray, num_labels: int) -> slice:
    """Return the rows of labels below a number."""
    return slice(int(np.searchsorted(rising, num_labels)))


def write_dev_corpus(corpus: Dataset, texts: Sequence[SaidOfText], folder: Path) -> Dataset:
    """Write a corpus that has a dev split alone, over the labels of another one; it is private.

    Args:
        corpus: With a dev split, of which some documents are taken (see `dev_rows`).
        texts: That join it; labels behind those of the corpus are left out.
        folder: Made where it is not there.
    """
    ids = [label.id for label in corpus.labels]
    make_private_folder(folder)
    write_lines_durably(
        folder / "labels.jsonl",
        (json.dumps({"id": label_id, "name": label_id}) for label_id in ids),
    )
    split = corpus.split("dev")
    chosen = split.part(dev_rows(split.texts()))
    old = ((each.text, [ids[row] for row in each.labels]) for each in chosen)
    new = ((each.text, [ids[x] for x in sorted(each.right) if x < len(ids)]) for each in texts)
    write_lines_durably(folder / "dev.jsonl", _lines([*old, *new]), is_private=True)
    return open_dataset(folder)


def _lines(documents: Iterable[tuple[str, list[str]]]) -> Iterator[str]:
    return (json.dumps({"text": text, "labels": labels}) for text, labels in documents)
