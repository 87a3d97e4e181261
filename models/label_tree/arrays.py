"""The arrays that a label tree is made of, and whether they make one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float32, Int64

from longtail.models.matrices import ArrayRule, check_arrays
from longtail.models.ranking.top_k import NO_LABEL


def depth_of(num_labels: int) -> int:
    """Return the depth of a tree of so many labels, ceil(log2 C); 0 for a single label."""
    return (num_labels - 1).bit_length()


def one_sided_biases(num_labels_below: Int64[np.ndarray, leaf]) -> Float32[np.ndarray, node]:
    """Return the biases that padding forces: +inf or -inf where one side holds only padding, or 0.

    Args:
        num_labels_below: For each leaf, from left to right, 1 if it has a label and 0 if not.
    """
    levels = []
    counts = num_labels_below
    while len(counts) > 1:
        left, right = counts[::2] > 0, counts[1::2] > 0
        forced = np.where(left & ~right, -np.inf, np.where(right & ~left, np.inf, 0.0))
        levels.append(forced.astype(np.float32))
        counts = counts[::2] + counts[1::2]
    return np.concatenate([*levels[::-1], np.empty(0, dtype=np.float32)])


ARRAYS = {
    "mean": ArrayRule(("float32",), 1),
    "components": ArrayRule(("float32",), 2),
    "weights": ArrayRule(("float32",), 2),
    "biases": ArrayRule(("float32",), 1, is_finite=False),
    "label_of_leaf": ArrayRule(("int64",), 1, least=NO_LABEL),
}


def problem_of(arrays: Mapping[str, np.ndarray]) -> str | None:
    """Return what of these arrays is no tree's, or None."""
    try:
        check_arrays(arrays, ARRAYS)
    except ValueError as error:
        return str(error)
    return _problem_of_shapes(arrays) or _problem_of_values(arrays)


def _problem_of_shapes(arrays: Mapping[str, np.ndarray]) -> str | None:
    num_leaves = len(arrays["label_of_leaf"])
    num_features, dim = arrays["components"].shape
    num_labels = int((arrays["label_of_leaf"] != NO_LABEL).sum())
    if not num_labels or num_leaves != 2 ** depth_of(num_labels):
        return (
            f"{num_leaves} leaves for {num_labels} labels, expected at least one and the smallest "
            "power of two that holds them"
        )
    if not num_features or not dim:
        return f"components has shape {(num_features, dim)}, expected one of each at least"
    expected = {
        "mean": (dim,),
        "weights": (num_leaves - 1, num_features),
        "biases": (num_leaves - 1,),
    }
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            return f"{name} has shape {arrays[name].shape}, expected {shape}"
    return None


def _problem_of_values(arrays: Mapping[str, np.ndarray]) -> str | None:
    label_of_leaf, biases = arrays["label_of_leaf"], arrays["biases"]
    is_label = label_of_leaf != NO_LABEL
    labels = np.sort(label_of_leaf[is_label])
    if not np.array_equal(labels, np.arange(len(labels))):
        return f"label_of_leaf does not hold each of {len(labels)} labels once"
    forced = one_sided_biases(is_label.astype(np.int64))
    found = np.where(np.isfinite(biases), 0.0, biases)
    if not np.array_equal(found, forced):
        return "biases are not infinite exactly where only padding lies on one side"
    return None
