"""What a version knows of the documents that it was trained on, so that little is fitted again.

The memory of the scorer `neighbours` has the tf-idf of every document with a label, in half
precision, and its labels then. A document that is not in it had none.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32
from scipy.sparse import csr_array, vstack

from longtail.ext.learn.documents import ChangedDocuments, labels_of
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.trained_on import TRAIN, TrainedOn, digests_of
from longtail.models.names import NEIGHBOURS
from longtail.models.parts.model_parts import ModelParts
from longtail.training.fitting import KnownDocuments
from longtail.training.sparse.coordinate_descent import WAS_ABSENT, WAS_NEGATIVE, WAS_POSITIVE


def known_documents(
    before: ModelParts, manifest: Manifest, record: TrainedOn | None, changed: ChangedDocuments
) -> tuple[KnownDocuments, Float32[csr_array, "document feature"], list[str]] | None:
    """Return what a version knows of documents, and the tf-idf and ids of all; reads them once.

    None where that can't be told, or where it knows others too, which are to be forgotten: without
    a memory or digests of its documents, with ids that several documents have, or with labels out
    of use, whose documents may count for others.

    Args:
        before: The version.
        manifest: Its manifest.
        record: Of its documents.
        changed: The documents now.
    """
    memory = before.models.get(NEIGHBOURS)
    if memory is None or record is None or not record.digests or not before.catalogue.in_use.all():
        return None
    digests = digests_of(each.text for each in changed.new)
    is_known = np.ones(changed.labels.shape[0], dtype=np.bool_)
    is_known[len(is_known) - len(digests) :] = np.isin(digests, record.digests[f"{TRAIN}_texts"])
    if int(is_known.sum()) != manifest.training_document_count:
        return None
    row_of = {document: row for row, document in enumerate(memory.ids)}
    ids, texts, rows = list[str](), dict[int, str](), list[int]()
    for row, (document_id, text) in enumerate(changed.documents()):
        own = row_of.get(document_id, -1) if is_known[row] else -1
        if own < 0 or labels_of(changed.labels, row) != labels_of(memory.labels, own):
            texts[row] = text
        ids.append(document_id)
        rows.append(own)
    if len(set(ids)) < len(ids) or len(memory.ids) != sum(own >= 0 for own in rows):
        return None
    places = np.array(rows, dtype=np.int64)
    none = csr_array((1, memory.labels.shape[1]), dtype=np.float32)
    truth = csr_array(vstack([memory.labels, none], format="csr")[places])
    truth.resize(changed.labels.shape)
    read = before.sparse.tfidf.transform(texts[row] for row in np.flatnonzero(places < 0).tolist())
    order = np.where(places < 0, len(memory.ids) + np.cumsum(places < 0) - 1, places)
    features = csr_array(vstack([memory.documents.to_csr(), read], format="csr"))
    if not np.array_equal(order, np.arange(len(order))):
        features = csr_array(features[order])
    return KnownDocuments(is_known, truth, texts), features, ids


def differing_documents(
    changed: ChangedDocuments, known: KnownDocuments
) -> Float32[csr_array, "label document"]:
    """Return what documents were to labels for which they are something else now.

    That is `WAS_POSITIVE` or `WAS_NEGATIVE` of documents that the version knows, else `WAS_ABSENT`:
    those that carry the label, and those for which it was rejected.

    Args:
        changed: The documents now.
        known: Those that the version knows.
    """
    steps = csr_array(changed.labels - known.truth).tocoo()
    steps.eliminate_zeros()
    was = np.where(steps.data > 0, WAS_NEGATIVE, WAS_POSITIVE)
    was[~known.is_known[steps.row]] = WAS_ABSENT
    first = len(known.is_known) - len(changed.new)
    rejected = [
        (label, row)
        for row, each in enumerate(changed.new, first)
        if not known.is_known[row]
        for label in each.wrong
    ]
    labels, rows = np.array(rejected, dtype=np.int64).reshape(-1, 2).T
    values = np.concatenate([was, np.full(len(rows), WAS_ABSENT)]).astype(np.float32)
    places = np.concatenate([steps.col, labels]), np.concatenate([steps.row, rows])
    found: csr_array = csr_array((values, places), shape=changed.labels.shape[::-1])
    return found
