"""The labels of documents as Python programs hold them: a sparse or dense matrix, or lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32
from scipy.sparse import csr_array, issparse

from longtail.models.errors import DataError
from longtail.training.data.splits import SparseRows

_ONE_EACH = "with one label each: [[x] for x in y], and of numbers [[str(x)] for x in y]"


class InvalidInputError(DataError, ValueError):
    """Texts, labels or parameters of an estimator are not as they have to be."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Which classes each document has.

    Attributes:
        classes: What the columns stand for: numbers, or the labels themselves.
        ids: Ids of the labels, as a corpus has them: the classes as text.
        truth: Ones where the document has the class.
    """

    classes: np.ndarray
    ids: tuple[str, ...]
    truth: Float32[csr_array, "document label"]

    def label_ids(self) -> Iterator[list[str]]:
        """Yield the ids of each document's labels."""
        truth = self.truth
        for start, stop in zip(truth.indptr[:-1], truth.indptr[1:], strict=True):
            yield [self.ids[column] for column in truth.indices[start:stop].tolist()]


def targets_of(y: Any, classes: Any = None, more_classes: Iterable[object] = ()) -> Targets:
    """Return the labels of documents, with what the columns stand for.

    Args:
        y: An indicator matrix, sparse or dense, of shape (documents, classes); or a list of labels
            for each document.
        classes: What the columns of a matrix stand for; None: the columns' names where it is a data
            frame, else their numbers. Of lists, the labels in the order of the columns; None: all
            that occur, sorted.
        more_classes: Labels that are classes though no list has them, for lists without `classes`.
    """
    y = kept_labels(y)
    if is_lists(y):
        labels = [_labels_of(row, document) for document, row in enumerate(y)]
        known = _classes_of_lists(labels, classes, more_classes)
        ids = _ids(known)
        return Targets(known, ids, _truth_of_lists(labels, {id_: i for i, id_ in enumerate(ids)}))
    truth = truth_of_matrix(y)
    names = getattr(y, "columns", None) if classes is None else classes
    known = np.arange(truth.shape[1]) if names is None else _array_of(names)
    if known.shape != (truth.shape[1],):
        raise InvalidInputError(
            f"classes: got the shape {known.shape}, expected ({truth.shape[1]},), one for each "
            "column of the matrix of labels"
        )
    return Targets(known, _ids(known), truth)


def truth_for(y: Any, classes: np.ndarray) -> Float32[csr_array, "document label"]:
    """Return the labels of documents as ones in the columns of an estimator's classes.

    Labels in lists that are no classes get columns behind them: no estimator can find them.
    """
    y = kept_labels(y)
    if is_lists(y):
        labels = [_labels_of(row, document) for document, row in enumerate(y)]
        ids = _ids(classes)
        unknown = sorted({label for row in labels for label in row} - set(ids))
        return _truth_of_lists(labels, {id_: i for i, id_ in enumerate([*ids, *unknown])})
    truth = truth_of_matrix(y)
    if truth.shape[1] != len(classes):
        raise InvalidInputError(
            f"labels: got a matrix of {truth.shape[1]} columns, expected {len(classes)}, one for "
            "each class of the estimator"
        )
    return truth


def kept_labels(y: Any) -> Any:
    """Return labels that can be read more than once: those of an iterator as a list."""
    return list(y) if isinstance(y, Iterator) else y


def is_lists(y: Any) -> bool:
    """Whether these are lists of labels rather than a matrix."""
    if issparse(y) or hasattr(y, "columns"):
        return False
    if isinstance(y, np.ndarray) and y.dtype != object:
        return False
    rows = list(y) if isinstance(y, Iterable) and not isinstance(y, str | bytes) else None
    if rows is None or any(isinstance(row, str | bytes) or not _is_list(row) for row in rows):
        raise InvalidInputError(
            "labels: expected a matrix of 0 and 1 (documents, classes), or a list of labels for "
            f'each document, such as [["duty"], ["duty", "oil"]]; {_ONE_EACH}'
        )
    return True


def truth_of_matrix(y: Any) -> Float32[csr_array, "document label"]:
    """Return an indicator matrix as rows of ones; a sparse matrix stays sparse."""
    matrix = y if issparse(y) else np.asarray(y)
    if matrix.ndim != 2:
        raise InvalidInputError(
            f"labels: got the shape {matrix.shape}, expected (documents, classes), or a list of "
            f"labels for each document; {_ONE_EACH}"
        )
    try:
        truth = csr_array(matrix, dtype=np.float32, copy=True)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"labels: expected a matrix of 0 and 1 ({error})") from error
    truth.sum_duplicates()
    truth.eliminate_zeros()
    if not (truth.data == 1).all():
        strange = truth.data[truth.data != 1][0]
        raise InvalidInputError(f"labels: got {strange:g} in the matrix, expected only 0 and 1")
    return truth


def _array_of(classes: Any) -> np.ndarray:
    is_sequence = isinstance(classes, Sequence) or hasattr(classes, "__array__")
    return np.asarray(classes if is_sequence else list(classes))


def _is_list(row: object) -> bool:
    is_array = isinstance(row, np.ndarray) and row.ndim == 1
    return is_array or isinstance(row, list | tuple | set | frozenset)


def _labels_of(row: Iterable[object], document: int) -> list[str]:
    """Return the labels of a list, each once; white space around them does not count."""
    labels: dict[str, None] = {}
    for label in sorted(row, key=str) if isinstance(row, set | frozenset) else row:
        if not isinstance(label, str) or not label.strip():
            raise InvalidInputError(
                f"labels of document {document}: got {label!r:.40} ({type(label).__name__}), "
                "expected labels as texts; for a matrix of 0 and 1 give an array"
            )
        labels[label.strip()] = None
    return list(labels)


def _classes_of_lists(
    labels: Sequence[Sequence[str]], classes: Any, more_classes: Iterable[object]
) -> np.ndarray:
    if classes is not None:
        return _array_of(classes)
    found = {label for row in labels for label in row} | {str(x).strip() for x in more_classes}
    if not found:
        raise InvalidInputError("labels: no document has a label; give some")
    return np.array(sorted(found), dtype=object)


def _ids(classes: np.ndarray) -> tuple[str, ...]:
    ids = tuple(str(each).strip() for each in classes.tolist())
    if "" in ids:
        raise InvalidInputError(f"classes: number {ids.index('')} is blank; give it a name")
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        twice = next(each for each in ids if each in seen or seen.add(each))  # type: ignore[func-returns-value]
        raise InvalidInputError(f"classes: {twice!r} stands for two columns; name each once")
    return ids


def _truth_of_lists(
    labels: Sequence[Sequence[str]], column_of: dict[str, int]
) -> Float32[csr_array, "document label"]:
    rows = SparseRows()
    for document, row in enumerate(labels):
        if unknown := [label for label in row if label not in column_of]:
            raise InvalidInputError(
                f"labels of document {document}: got {unknown[0]!r}, which is not among the classes"
            )
        rows.add(column_of[label] for label in row)
    return rows.matrix(len(column_of))
