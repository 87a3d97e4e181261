"""Precision and recall that forgive near misses: a label counts with all that stands above it.

Kiritchenko, Matwin, Nock, Famili 2006, "Learning and Evaluation in the Presence of Class
Hierarchies", section 4.2: with P_i the labels that are predicted for document i and all above them,
and T_i its true labels and all above them,

    hP = sum_i |P_i and T_i| / sum_i |P_i|,    hR = sum_i |P_i and T_i| / sum_i |T_i|.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32
from scipy.sparse import csr_array

from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.training.evaluation.tables import Table

_NOTE = (
    "Labels together with all that stands above them in the vocabulary (Kiritchenko et al. 2006), "
    "in percent."
)
Hierarchical: TypeAlias = dict[str, dict[str, float]]
"""Fractions by scorer, by "hP@k" and "hR@k"."""


def hierarchical_table(found: Hierarchical) -> Table:
    """Return a table with one row a scorer."""
    names = sorted(next(iter(found.values())), key=lambda name: name[:2])
    rows = [
        [scorer, *(f"{100 * values[name]:.2f}" for name in names)]
        for scorer, values in found.items()
    ]
    return Table("With the hierarchy", _NOTE, (["scorer", *names], rows), has_best=True)


def measure_hierarchical(
    rankings: Mapping[str, Ranking],
    truth: Float32[csr_array, "document label"],
    ancestors: Float32[csr_array, "label label"],
    ks: Sequence[int],
) -> Hierarchical:
    """Return hierarchical precision and recall of each scorer at each k.

    Args:
        rankings: The best labels of each document, by scorer.
        truth: The labels of each document.
        ancestors: 1 for each label itself and for all above it (`LabelHierarchy.ancestors`).
        ks: At most the width of each ranking.
    """
    true = _present(truth @ ancestors)
    return {
        scorer: {
            name: value for k in ks for name, value in _at(ranking, true, ancestors, k).items()
        }
        for scorer, ranking in rankings.items()
    }


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
