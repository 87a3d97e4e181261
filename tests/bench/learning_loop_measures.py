"""How arms of a learning loop answered the documents of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from document_stream import Step
from scipy.sparse import csr_array

from longtail.models.metrics import join_truth, precision_at, recall_at
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.data.splits import Document

K = 10
"""Labels of an answer."""


@dataclass
class Measures:
    """The answers to a step, and what is right.

    Attributes:
        step: Its documents, in the order of `Step.all`.
        num_labels: The corpus' number of labels.
        at_start: Rows of the labels that the first model had documents of.
        before: Rows of the labels that had a document to learn from before the step.
        ranked: By arm, the rows of each document's best labels, `K` of them.
    """

    step: Step
    num_labels: int
    at_start: set[int]
    before: set[int]
    ranked: Mapping[str, np.ndarray]

    @cached_property
    def truth(self) -> csr_array:
        """Ones where a document carries a label."""
        return matrix_of(self.step.all, self.num_labels)

    @cached_property
    def of_new(self) -> csr_array:
        """The pairs with labels that are new since the start."""
        is_new = np.ones(self.num_labels, dtype=np.float32)
        is_new[sorted(self.at_start)] = 0
        found = csr_array(self.truth * is_new)
        found.eliminate_zeros()
        return found

    def figures(self, rows: np.ndarray) -> dict[str, Any]:
        """Return the metrics of some documents, in percent; None where no label is new."""
        with_new = rows[np.diff(self.of_new.indptr)[rows] > 0]
        found: dict[str, Any] = {"documents": len(rows), "with new labels": len(with_new)}
        for arm, columns in self.ranked.items():
            of_all = join_truth(columns[rows], self.truth[rows])
            found[f"P@5, {arm}"] = 100 * precision_at(of_all, 5)
            found[f"R@10 of new, {arm}"] = None
            if len(with_new):
                of_new = join_truth(columns[with_new], self.of_new[with_new])
                found[f"R@10 of new, {arm}"] = 100 * recall_at(of_new, K)
        found["possible"] = self._possible(with_new)
        return found

    def _possible(self, rows: np.ndarray) -> float | None:
        """Return the R@10 of one who knows every label that had a document before."""
        had_one = np.zeros(self.num_labels)
        had_one[sorted(self.before)] = 1
        new = self.of_new[rows]
        shares = np.minimum(new @ had_one, K) / np.maximum(new.sum(axis=1), 1)
        return float(100 * shares.mean()) if len(rows) else None

    def to_json(self) -> dict[str, Any]:
        """Return the figures of the step, and of each of its years."""
        years = np.array([self.step.year_of[document.id] for document in self.step.all])
        by_year = [
            {"year": int(year), **self.figures(np.flatnonzero(years == year))}
            for year in np.unique(years)
        ]
        return {
            "years": list(self.step.years),
            **self.figures(np.arange(len(years))),
            "by year": by_year,
        }


def matrix_of(documents: Sequence[Document], num_labels: int) -> csr_array:
    """Return the labels of documents as a matrix of ones."""
    indices = np.array([row for each in documents for row in each.labels], dtype=np.int32)
    indptr = np.concatenate([[0], np.cumsum([len(each.labels) for each in documents])])
    ones = np.ones(len(indices), dtype=np.float32)
    return csr_array((ones, indices, indptr), shape=(len(documents), num_labels))


def padded(rows: list[int]) -> list[int]:
    """Return `K` rows of labels, with `NO_LABEL` behind the last one."""
    return rows + [NO_LABEL] * (K - len(rows))
