"""Changes of a vocabulary as a new version of a model: ids and rows of all labels stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from longtail.ext.editions.changes import VocabularyChanges
from longtail.ext.editions.labels import ChangedLabels, catalogue_of, changed_labels
from longtail.ext.editions.rows import (
    FitRows,
    Weights,
    changed_names,
    documents_of_labels,
    merged_counts,
    merged_linear,
    merged_sparse,
    with_merged_labels,
)
from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.manifest import Manifest
from longtail.models.edit.rewriting import (
    VECTORS,
    encoded_label_texts,
    model_to_extend,
    write_changed,
)
from longtail.models.errors import DataError, ignore
from longtail.models.kinds.registry import KINDS, kinds_of_new_labels, with_own_models
from longtail.models.kinds.scorer import ScorerKind
from longtail.models.kinds.storage import read_model
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.labels.text import text_for_encoder
from longtail.models.memory.memory import NeighbourMemory
from longtail.models.names import (
    CLASSIFIER,
    DENSE_NEIGHBOURS,
    LINEAR,
    NAMES,
    NEIGHBOURS,
    WORD_NEIGHBOURS,
)
from longtail.models.parts.model_parts import RETRIEVAL_FILE, SPARSE_FILE
from longtail.models.parts.sparse_storage import arrays_of_sparse, read_sparse

Arrays = dict[str, dict[str, np.ndarray]]
"""Arrays by file and name."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A label that others were merged into.

    Attributes:
        id: Id of the label.
        merged: Ids of the labels merged into it.
        training_count: Training documents that carry it now.
        weights: The source of its sparse weights.
    """

    id: str
    merged: tuple[str, ...]
    training_count: int
    weights: Weights


@dataclass(frozen=True, slots=True)
class SplitLabel:
    """A label that was split, and the documents that need new labels.

    Attributes:
        id: Id of the label.
        by: Ids of its parts.
        training_count: Training documents that carry it.
        document_ids: Ids of those that the model remembers.
    """

    id: str
    by: tuple[str, ...]
    training_count: int
    document_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of applying changes to a model.

    Attributes:
        label_count: Labels of the new version, including retired ones.
        num_retired: Labels that no scorer answers any more.
        num_new: Labels that were added.
        num_encoded: Labels whose text the encoder has read, including new ones.
        can_find_new: Whether any scorer can find a label without training documents.
        merged: Labels that others were merged into.
        split: Labels that were split.
        unknown: Ids in the changes that the version doesn't have.
        present: Ids of new labels that it had already.
    """

    label_count: int
    num_retired: int
    num_new: int
    num_encoded: int
    can_find_new: bool
    merged: tuple[Merged, ...]
    split: tuple[SplitLabel, ...]
    unknown: tuple[str, ...]
    present: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all of it as it is written in JSON."""
        return asdict(self)


def apply_changes(
    bundle: Bundle,
    changes: VocabularyChanges,
    fit_rows: FitRows | None = None,
    progress: Callable[[int], object] = ignore,
) -> tuple[Callable[[Path], Manifest], Applied]:
    """Return what writes a bundle with changes of its vocabulary, for `Registry.publish`.

    Files that no change concerns are copied byte for byte, and rows of labels that none concerns
    stay the same to the bit. So do their scores by all scorers but `names`, which compares what the
    names found in a text have in common, and those that blend it; a tail dial, and the correction
    "prior", shift all scores by one constant, as priors are shares.

    Args:
        bundle: A verified bundle.
        changes: Changes of its vocabulary.
        fit_rows: Fits the sparse weights of labels that others were merged into; None: they keep
            those of the label that had most documents.
        progress: Called with the number of labels that were just encoded.
    """
    if not changes:
        raise DataError("changes: there are none; nothing is to be applied")
    applied = _Application(bundle, changed_labels(bundle, changes), fit_rows)
    tensors, texts = applied.files(progress)
    write = partial(
        write_changed,
        bundle=bundle,
        catalogue=applied.catalogue,
        changed_tensors=tensors,
        changed_texts=texts,
    )
    return write, applied.report()


class _Application:
    """What becomes of each part of a bundle."""

    def __init__(self, bundle: Bundle, changed: ChangedLabels, fit_rows: FitRows | None) -> None:
        self._bundle = bundle
        self._changed = changed
        self._fit_rows = fit_rows
        self._sparse = read_sparse(bundle)
        self._memory: NeighbourMemory | None = None
        if NEIGHBOURS in bundle.manifest.scorers:
            self._memory = read_model(bundle, KINDS[NEIGHBOURS], self._sparse)
        num_new = len(changed.labels) - changed.num_before
        self._counts: Int64[np.ndarray, label] = np.concatenate(
            [bundle.catalogue.training_counts, np.zeros(num_new, dtype=np.int64)]
        )
        counts = merged_counts(self._counts, changed.rows_after, self._memory)
        self.catalogue: LabelCatalogue = catalogue_of(changed, counts)
        self._weights: Mapping[int, Weights] = {}

    def _with_labels(self, kind: ScorerKind) -> Any:
        """Return a model for the labels as they are now; None where it stays as it is."""
        model = model_to_extend(self._bundle, kind, self._sparse)
        if kind.name == NAMES:
            return changed_names(model, self._changed)
        new = self._changed.labels[self._changed.num_before :]
        return kind.with_labels(model, new) if new else None

    def files(self, progress: Callable[[int], object]) -> tuple[Arrays, dict[str, str]]:
        """Return the arrays and texts of the files that are others now."""
        tensors, texts = self._encoded(progress), dict[str, str]()
        for kind in with_own_models(self._bundle.manifest.scorers):
            if kind.scores_new_labels and (model := self._with_labels(kind)) is not None:
                tensors[kind.file] = kind.arrays(model)
                texts |= kind.texts(model)
        if self._changed.into:
            tensors |= self._merged()
        return tensors, texts

    def _encoded(self, progress: Callable[[int], object]) -> Arrays:
        rows = self._changed.texts_changed
        if self._bundle.manifest.encoder is None or not rows:
            return {}
        is_tuned = self._bundle.manifest.encoder.is_tuned
        labels = [self._changed.labels[row] for row in rows]
        texts = [text_for_encoder(label, is_tuned=is_tuned) for label in labels]
        vectors = encoded_label_texts(self._bundle, texts, progress)
        from longtail.models.parts.dense_storage import read_label_vectors  # brings PyTorch

        before = read_label_vectors(self._bundle)
        shape = (len(self._changed.labels), before.shape[1])
        after = np.zeros(shape, dtype=before.dtype)
        after[: len(before)] = before
        after[list(rows)] = vectors
        return {RETRIEVAL_FILE: {VECTORS: after}}

    def _merged(self) -> Arrays:
        """Return what merges change: what documents carry, and the weights of labels."""
        into, counts, found = self._changed.into, self._counts, Arrays()
        memory = None
        remembering = {NEIGHBOURS, DENSE_NEIGHBOURS, WORD_NEIGHBOURS}.intersection(
            self._bundle.manifest.scorers
        )
        for kind in with_own_models(remembering):
            known = read_model(self._bundle, kind, self._sparse)
            merged = with_merged_labels(known, self._changed.rows_after)
            found[kind.file] = kind.arrays(merged)
            memory = merged if kind.name == NEIGHBOURS else memory
        sparse, self._weights = merged_sparse(self._sparse, into, counts, memory, self._fit_rows)
        found[SPARSE_FILE] = arrays_of_sparse(sparse)
        dense = {CLASSIFIER, LINEAR}.intersection(self._bundle.manifest.scorers)
        for kind in with_own_models(dense):
            linear = read_model(self._bundle, kind, self._sparse)
            num_leaves = None if linear.tree is None else linear.tree.num_labels
            rows = merged_linear(linear.model, into, counts, num_leaves)
            found[kind.file] = kind.arrays(replace(linear, model=rows))
        return found

    def report(self) -> Applied:
        """Return what has become of the model."""
        manifest, labels = self._bundle.manifest, self.catalogue
        into: dict[int, list[str]] = {}
        for row, other in sorted(self._changed.into.items()):
            into.setdefault(other, []).append(labels[row].id)
        has_encoder = manifest.encoder is not None
        return Applied(
            label_count=len(labels),
            num_retired=int((~labels.in_use).sum()),
            num_new=len(labels) - self._changed.num_before,
            num_encoded=len(self._changed.texts_changed) if has_encoder else 0,
            can_find_new=bool(kinds_of_new_labels(manifest.scorers)),
            merged=tuple(
                Merged(labels[x].id, tuple(ids), labels[x].training_count, self._weights[x])
                for x, ids in sorted(into.items())
            ),
            split=self._split(),
            unknown=self._changed.unknown,
            present=self._changed.present,
        )

    def _split(self) -> tuple[SplitLabel, ...]:
        rows = sorted(self._changed.split)
        documents: Sequence[tuple[str, ...]] = [()] * len(rows)
        if self._memory is not None and rows:
            documents = documents_of_labels(self._memory, rows)
        found = []
        for row, ids in zip(rows, documents, strict=True):
            label = self.catalogue[row]
            found.append(SplitLabel(label.id, label.replaced_by, label.training_count, ids))
        return tuple(found)
