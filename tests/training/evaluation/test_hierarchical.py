"""Hierarchical precision and recall, against sets."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.hierarchy import LabelHierarchy
from longtail.models.metrics import measure_hierarchical
from longtail.models.ranking.top_k import NO_LABEL, Ranking

BROADER = {1: {0}, 2: {0}, 3: {1, 2}, 5: {4}}
NUM_LABELS = 7


def closed(labels) -> set[int]:
    found = set(labels)
    while more := {above for label in found for above in BROADER.get(label, ())} - found:
        found |= more
    return found


@pytest.fixture(scope="module")
def ancestors():
    labels = (
        Label(f"{row}", "x", broader=tuple(map(str, BROADER.get(row, ()))))
        for row in range(NUM_LABELS)
    )
    return LabelHierarchy(LabelCatalogue(labels)).ancestors()


@pytest.mark.parametrize("seed", range(5))
def test_the_values_are_those_of_the_paper(ancestors, seed):
    random = np.random.default_rng(seed)
    truth = (random.random((20, NUM_LABELS)) < 0.3).astype(np.float32)
    labels = np.array([random.permutation(NUM_LABELS)[:3] for _ in range(20)])
    labels[random.random(labels.shape) < 0.2] = NO_LABEL
    ranking = Ranking(labels, np.zeros(labels.shape, np.float32))
    found = measure_hierarchical({"x": ranking}, csr_array(truth), ancestors, (1, 3))["x"]
    for k in (1, 3):
        pairs = [
            (closed(x for x in top[:k] if x != NO_LABEL), closed(np.flatnonzero(row).tolist()))
            for top, row in zip(labels.tolist(), truth, strict=True)
        ]
        common = sum(len(p & t) for p, t in pairs)
        assert found[f"hP@{k}"] == pytest.approx(common / sum(len(p) for p, _ in pairs))
        assert found[f"hR@{k}"] == pytest.approx(common / sum(len(t) for _, t in pairs))


def test_nothing_predicted_and_nothing_true_are_0(ancestors):
    empty = csr_array((1, NUM_LABELS), dtype=np.float32)
    ranking = Ranking(np.array([[NO_LABEL]]), np.full((1, 1), -np.inf, np.float32))
    found = measure_hierarchical({"x": ranking}, empty, ancestors, (1,))
    assert found == {"x": {"hP@1": 0.0, "hR@1": 0.0}}
