"""What a version knows of the documents that it was trained on, so that little is fitted again.

The memory of the scorer `neighbours` has the tf-idf of every document with a label, in half
precision, and its labels then. A document that is not in it had none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array, vstack

from longtail.ext.learn.documents import ChangedDocuments
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.trained_on import TRAIN, TrainedOn, digests_of
from longtail.models.memory.memory import NeighbourMemory
from longtail.models.names import NEIGHBOURS
from longtail.models.parts.model_parts import ModelParts
from longtail.training.fitting import KnownDocuments


def known_documents(
    before: ModelParts,
    manifest: Manifest,
    record: TrainedOn | None,
    changed: ChangedDocuments,
    ids: Sequence[str],
) -> tuple[KnownDocuments, Float32[csr_array, "document feature"]] | None:
    """Return which documents a version knows, with their labels then, and the tf-idf of all.

    None where that can't be told, or where it knows others too, which are to be forgotten: without
    a memory or digests of its documents, with ids that several documents have, or with labels that
    were retired, whose documents may count for others.

    Args:
        before: The version.
        manifest: Its manifest.
        record: Of its documents.
        changed: The documents now.
        ids: Of these.
    """
    memory = before.models.get(NEIGHBOURS)
    if memory is None or record is None or not record.digests or before.catalogue.is_retired.any():
        return None
    row_of = {document: row for row, document in enumerate(memory.ids)}
    if len(set(ids)) < len(ids) or not row_of.keys() <= set(ids):
        return None
    digests = digests_of(each.text for each in changed.new)
    is_known = np.ones(len(ids), dtype=np.bool_)
    is_known[len(ids) - len(digests) :] = np.isin(digests, record.digests[f"{TRAIN}_texts"])
    if int(is_known.sum()) != manifest.training_document_count:
        return None
    rows = np.array([row_of.get(document, -1) for document in ids], dtype=np.int64)
    rows[~is_known] = -1
    none = csr_array((1, memory.labels.shape[1]), dtype=np.float32)
    truth = csr_array(vstack([memory.labels, none], format="csr")[rows])
    truth.resize(changed.labels.shape)
    return KnownDocuments(is_known, truth), _features(before, memory, changed, rows)


def _features(
    before: ModelParts,
    memory: NeighbourMemory,
    changed: ChangedDocuments,
    rows: Int64[np.ndarray, document],
) -> Float32[csr_array, "document feature"]:
    """Return the tf-idf of documents, those with a row in the memory as that has it."""
    is_read = rows < 0
    read = before.sparse.tfidf.transform(compress(changed.texts(), is_read.tolist()))
    order = np.where(is_read, memory.documents.shape[0] + np.cumsum(is_read) - 1, rows)
    found: csr_array = csr_array(vstack([memory.documents.to_csr(), read], format="csr")[order])
    return found
