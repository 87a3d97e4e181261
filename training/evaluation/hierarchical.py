"""Precision and recall that forgive near misses: a label counts with all that stands above it.

Kiritchenko, Matwin, Nock, Famili 2006, "Learning and Evaluation in the Presence of Class
Hierarchies", section 4.2: with P_i the labels that are predicted for document i and all above them,
and T_i its true labels and all above them,

    hP = sum_i |P_i and T_i| / sum_i |P_i|,    hR = sum_i |P_i and T_i| / sum_i |T_i|.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32
from scipy.sparse import csr_array

from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.training.evaluation.tables import Cells, markdown_table

HIERARCHY_NOTE = (
    "Labels together with all that stands above them in the vocabulary (Kiritchenko et al. 2006), "
    "in percent."
)
"""Of the table of `HierarchicalReport.cells`."""


@dataclass(frozen=True, slots=True)
class HierarchicalReport:
    """Hierarchical precision and recall of several scorers.

    Attributes:
        ks: Numbers of positions measured at.
        values: By scorer, by "hP@k" and "hR@k": fractions.
    """

    ks: tuple[int, ...]
    values: dict[str, dict[str, float]]

    def to_json(self) -> dict[str, dict[str, float]]:
        """Return the values."""
        return self.values

    def cells(self) -> Cells:
        """Return the heading and the rows of a table with one row a scorer, in percent."""
        names = [f"{measure}@{k}" for measure in ("hP", "hR") for k in self.ks]
        return ["scorer", *names], [
            [scorer, *(f"{100 * found[name]:.2f}" for name in names)]
            for scorer, found in self.values.items()
        ]

    def to_markdown(self) -> str:
        """Return the table, and what it shows."""
        return f"{HIERARCHY_NOTE}\n\n{markdown_table(*self.cells())}"


def measure_hierarchical(
    rankings: Mapping[str, Ranking],
    truth: Float32[csr_array, "document label"],
    ancestors: Float32[csr_array, "label label"],
    ks: Sequence[int],
) -> HierarchicalReport:
    """Return hierarchical precision and recall of each scorer at each k.

    Args:
        rankings: The best labels of each document, by scorer.
        truth: The labels of each document.
        ancestors: 1 for each label itself and for all above it (`LabelHierarchy.ancestors`).
        ks: At most the width of each ranking.
    """
    true = _present(truth @ ancestors)
    values = {
        scorer: {
            name: value for k in ks for name, value in _at(ranking, true, ancestors, k).items()
        }
        for scorer, ranking in rankings.items()
    }
    return HierarchicalReport(tuple(ks), values)


def _at(
    ranking: Ranking,
    true: Float32[csr_array, "document label"],
    ancestors: Float32[csr_array, "label label"],
    k: int,
) -> dict[str, float]:
    top = ranking.labels[:, :k]
    rows, places = np.nonzero(top != NO_LABEL)
    ones = np.ones(len(rows), dtype=np.float32)
    found = csr_array((ones, (rows, top[rows, places])), shape=true.shape)
    predicted = _present(found @ ancestors)
    num_common = float(predicted.multiply(true).sum())
    return {
        f"hP@{k}": num_common / max(predicted.nnz, 1),
        f"hR@{k}": num_common / max(true.nnz, 1),
    }


def _present(counts: csr_array) -> Float32[csr_array, "document label"]:
    counts.eliminate_zeros()
    counts.data = np.ones(len(counts.data), dtype=np.float32)
    return counts
