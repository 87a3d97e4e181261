"""What an experiment on a corpus learns from and is measured on: features and labels of two parts.

Labels without a training document are left out of both parts, and so of every figure: no model
without label texts can learn one, and a loss that never draws one leaves its score as it began.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64
from scipy.sparse import csr_array

from longtail.models.errors import DataError
from longtail.training.configuration.sections import SparseConfig
from longtail.training.data.dataset import Dataset
from longtail.training.learning.sampling import label_counts
from longtail.training.sparse.vocabulary import fit_tfidf_of

_HELD_OUT_SHARE = 0.1
_OF_HOLDING_OUT, _OF_HALF = slice(4), slice(4, 8)  # bytes of a digest
_MIDDLE, _HIGH = 0.33, 0.66  # quantiles that divide tail, torso and head


@dataclass(frozen=True, slots=True)
class Part:
    """Documents with their labels.

    Attributes:
        features: Rows of length one.
        truth: 1 where the document carries the label.
    """

    features: Float32[csr_array, "document feature"]
    truth: Float32[csr_array, "document label"]

    def rows(self, chosen: Bool[np.ndarray, document] | Int64[np.ndarray, row]) -> Part:
        """Return some of the documents."""
        return Part(self.features[chosen], self.truth[chosen])


@dataclass(frozen=True, slots=True)
class ExperimentData:
    """What a model is trained on, and what it is measured on.

    Attributes:
        train: Training documents that carry a label.
        measured: Documents of another part, over the same features and labels.
    """

    train: Part
    measured: Part

    @property
    def counts(self) -> Int64[np.ndarray, label]:
        """Training documents of each label, at least 1."""
        return label_counts(self.train.truth)


def read_experiment_data(dataset: Dataset, split: str) -> ExperimentData:
    """Return the training part, and the one to measure on.

    A corpus without a dev split gets one: a tenth of its training documents, chosen by a hash of
    their features, so that documents with one text are all on one side. The idf weights, which
    know of no label, are those of all training documents.

    Args:
        dataset: The corpus.
        split: "dev" or "test".
    """
    training = dataset.split("train")
    tfidf, features = fit_tfidf_of(training, SparseConfig())
    train = Part(features, training.scan().labels)
    if split == "dev" and "dev" not in dataset.split_names:
        is_held_out = _is_held_out(features)
        train, measured = train.rows(~is_held_out), train.rows(is_held_out)
    else:
        documents = dataset.split(split)
        measured = Part(tfidf.transform(documents.texts()), documents.scan().labels)
    return _with_trained_labels(train, measured, f"{dataset.folder}, split {split!r}")


def tuning_and_measured(
    data: ExperimentData, rates: Sequence[float]
) -> tuple[ExperimentData, ExperimentData]:
    """Return the data to choose a rate on, and the data that figures are of.

    With several rates each has half of the measured documents, those with one text on one side;
    with a single rate nothing is chosen, and both are all.

    Args:
        data: To divide.
        rates: To choose from.
    """
    if len(rates) == 1:
        return data, data
    is_first = _hashes(data.measured.features, _OF_HALF) < 2**31
    divided = tuple(
        ExperimentData(data.train, data.measured.rows(chosen)) for chosen in (is_first, ~is_first)
    )
    if any(each.measured.truth.nnz == 0 for each in divided):
        raise DataError(
            f"{data.measured.truth.shape[0]} measured documents can't be halved, to choose rates "
            "on one half: one has no labels; give more documents, or a single rate"
        )
    return divided[0], divided[1]


def thirds(counts: Int64[np.ndarray, label]) -> Mapping[str, Bool[np.ndarray, label]]:
    """Return which labels are Head, Torso, Tail, and Full: all.

    Rawat et al. 2021, section 5.2: divided by the 33% and 66% quantiles of the frequencies of the
    labels, each label counting once. Head is above both, Tail is not above the lower one; labels
    of one frequency are never divided, so the parts are as even as ties allow.
    """
    middle, high = np.quantile(counts, [_MIDDLE, _HIGH])
    return {
        "Head": counts > high,
        "Torso": (counts > middle) & (counts <= high),
        "Tail": counts <= middle,
        "Full": np.ones(len(counts), dtype=np.bool_),
    }


def _is_held_out(
    features: Float32[csr_array, "document feature"],
) -> Bool[np.ndarray, document]:
    return _hashes(features, _OF_HOLDING_OUT) < int(_HELD_OUT_SHARE * 2**32)


def _hashes(
    features: Float32[csr_array, "document feature"], place: slice
) -> Int64[np.ndarray, document]:
    """Return a number below 2^32 of each document, the same for equal features.

    Args:
        features: The documents' features.
        place: Which four bytes of the digest; others are another number.
    """
    hashes = np.empty(features.shape[0], dtype=np.int64)
    for row, (start, stop) in enumerate(zip(features.indptr, features.indptr[1:], strict=False)):
        content = features.indices[start:stop].astype(np.int64).tobytes()
        content += features.data[start:stop].tobytes()
        hashes[row] = int.from_bytes(hashlib.sha256(content).digest()[place], "big")
    return hashes


def _with_trained_labels(train: Part, measured: Part, where: str) -> ExperimentData:
    train = train.rows(np.diff(train.truth.indptr) > 0)
    is_trained = label_counts(train.truth) > 0
    data = ExperimentData(
        *(Part(part.features, part.truth[:, is_trained]) for part in (train, measured))
    )
    for part, purpose in ((data.train, "train on"), (data.measured, "measure on")):
        if part.truth.nnz == 0:
            raise DataError(
                f"{where}: no document with a label that is trained is left to {purpose}; "
                "give more documents"
            )
    return data
