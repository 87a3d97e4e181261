"""A multi-class problem with a long tail of known shape, made from a multi-label corpus.

The EXP and STEP profiles of Rawat et al. 2021, section 5.1, after Cui et al. 2019 and Cao et al.
2019: classes that have equally many documents lose some, to end between n and n / imbalance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.errors import DataError
from longtail.training.learning.sampling import label_counts
from research.experiments.data import ExperimentData, Part

Profile = Literal["EXP", "STEP"]
_HEAD, _TORSO = 100, 20  # training documents, as in section 5.1 (Kang et al. 2020)


@dataclass(frozen=True, slots=True)
class ProfileShape:
    """How a problem is made.

    Attributes:
        kind: "EXP" falls by a constant factor from class to class; "STEP" keeps half of the
            classes whole and cuts the other half.
        num_classes: Number of the commonest classes, at most.
        imbalance: The largest class over the smallest.
    """

    kind: Profile
    num_classes: int = 100
    imbalance: float = 100.0


def profile_sizes(shape: ProfileShape, most: int, num_classes: int) -> Int64[np.ndarray, "class"]:
    """Return the documents of each class, falling, at least 1."""
    if shape.kind == "EXP":
        shares = shape.imbalance ** -np.linspace(0, 1, num_classes)
    else:
        shares = np.where(np.arange(num_classes) < num_classes / 2, 1.0, 1 / shape.imbalance)
    return np.maximum(1, np.round(most * shares)).astype(np.int64)


def make_profile(
    data: ExperimentData, shape: ProfileShape, rng: np.random.Generator
) -> ExperimentData:
    """Return a problem in which each document has one class and classes have a long tail.

    A document belongs to the rarest of its labels among the 2 x `num_classes` commonest. The
    classes are the `num_classes` to which the most training documents belong; all are cut to the
    size of the smallest of them before the profile cuts. Which class is rare is random, so that it
    does not hang on what the class is about.

    Args:
        data: The corpus.
        shape: The profile's shape.
        rng: Chooses the rare classes, and the documents that stay.
    """
    counts = data.counts
    candidates = np.argsort(-counts, kind="stable")[: 2 * shape.num_classes]
    of_train, of_measured = (
        _rarest(part.truth, counts, candidates) for part in (data.train, data.measured)
    )
    sizes = np.bincount(of_train[of_train >= 0], minlength=len(counts))
    sizes[~np.isin(np.arange(len(counts)), of_measured)] = 0
    classes = np.argsort(-sizes, kind="stable")[: shape.num_classes]
    classes = rng.permutation(classes[sizes[classes] > 0])
    if len(classes) < 2:
        raise DataError(
            f"profile {shape.kind}: {len(classes)} classes have documents in both parts; expected "
            "at least 2; give more documents"
        )
    expected = profile_sizes(shape, int(sizes[classes].min()), len(classes))
    kept = [
        rng.permutation(np.flatnonzero(of_train == label))[:size]
        for label, size in zip(classes, expected, strict=True)
    ]
    return ExperimentData(
        _of_classes(data.train, np.sort(np.concatenate(kept)), of_train, classes),
        _of_classes(
            data.measured, np.flatnonzero(np.isin(of_measured, classes)), of_measured, classes
        ),
    )


def balanced_errors(
    predicted: Int64[np.ndarray, document], data: ExperimentData
) -> dict[str, float]:
    """Return the mean over classes of their error rate: of Head, Torso, Tail where there are such.

    Args:
        predicted: The class given to each measured document.
        data: The problem.
    """
    true = data.measured.truth.indices
    num_true = label_counts(data.measured.truth)
    num_right = np.bincount(true[predicted == true], minlength=len(num_true))
    errors: Float64[np.ndarray, "class"] = 1 - num_right / num_true
    groups = _frequency_groups(data.counts)
    return {name: float(errors[is_in].mean()) for name, is_in in groups.items() if is_in.any()}


def _frequency_groups(
    counts: Int64[np.ndarray, "class"],
) -> dict[str, Bool[np.ndarray, "class"]]:
    return {
        "Head": counts >= _HEAD,
        "Torso": (counts >= _TORSO) & (counts < _HEAD),
        "Tail": counts < _TORSO,
        "Full": np.ones(len(counts), dtype=np.bool_),
    }


def _rarest(
    truth: csr_array, counts: Int64[np.ndarray, label], candidates: Int64[np.ndarray, candidate]
) -> Int64[np.ndarray, document]:
    """Return the rarest candidate that each document carries, or -1."""
    by_rarity = candidates[np.argsort(counts[candidates], kind="stable")]
    carried = truth[:, by_rarity].tocsr()
    carried.sort_indices()
    rarest = np.full(truth.shape[0], -1, dtype=np.int64)
    has_any = np.diff(carried.indptr) > 0
    rarest[has_any] = by_rarity[carried.indices[carried.indptr[:-1][has_any]]]
    return rarest


def _of_classes(
    part: Part,
    rows: Int64[np.ndarray, row],
    label_of: Int64[np.ndarray, document],
    classes: Int64[np.ndarray, "class"],
) -> Part:
    order = np.argsort(classes)
    columns = order[np.searchsorted(classes, label_of[rows], sorter=order)]
    ones = np.ones(len(rows), dtype=np.float32)
    truth = csr_array((ones, columns, np.arange(len(rows) + 1)), shape=(len(rows), len(classes)))
    return Part(part.features[rows], truth)
