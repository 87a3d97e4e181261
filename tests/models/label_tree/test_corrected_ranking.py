"""Corrected top-k against a sort of all labels, to the bit, on both ways to get it."""

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.models.label_tree.arrays import depth_of, one_sided_biases
from longtail.models.label_tree.corrected_top_k import CorrectedSource, corrected_sources
from longtail.models.label_tree.tree import LabelTree
from longtail.models.ranking.index import InnerProductIndex
from longtail.models.ranking.threshold_algorithm import SUM, rank
from longtail.models.ranking.top_k import NO_LABEL, Ranking, Source

DIM, COMPONENTS = 6, 3


def make_tree(num_labels: int, rng: np.random.Generator, values: np.ndarray | None) -> LabelTree:
    """A tree with random nodes, or with nodes of few values, so that labels tie."""

    def draw(*shape: int) -> np.ndarray:
        drawn = rng.standard_normal(shape) if values is None else rng.choice(values, shape)
        return drawn.astype(np.float32)

    num_leaves = 2 ** depth_of(num_labels)
    label_of_leaf = np.full(num_leaves, NO_LABEL, dtype=np.int64)
    label_of_leaf[rng.permutation(num_leaves)[:num_labels]] = rng.permutation(num_labels)
    forced = one_sided_biases((label_of_leaf != NO_LABEL).astype(np.int64))
    return LabelTree.from_arrays(
        {
            "mean": draw(DIM),
            "components": draw(COMPONENTS, DIM),
            "weights": draw(num_leaves - 1, COMPONENTS),
            "biases": np.where(np.isinf(forced), forced, draw(num_leaves - 1)),
            "label_of_leaf": label_of_leaf,
        }
    )


class Problem:
    """A tree over all labels, an index of some of them, and documents."""

    def __init__(
        self, num_labels: int, seed: int, *, tied: bool = False, share: float = 0.8, rows: int = 3
    ) -> None:
        rng = np.random.default_rng(seed)
        values = np.array([0.0, 0.0, 0.0, 1.0]) if tied else None
        self.tree = make_tree(num_labels, rng, values)
        is_indexed = rng.random(num_labels) < share
        is_indexed[rng.integers(num_labels)] = True
        labels = np.flatnonzero(is_indexed).astype(np.int64)
        rows_of_labels = rng.standard_normal((len(labels), DIM))
        self.vectors = rng.standard_normal((rows, DIM)).astype(np.float32)
        if tied:
            rows_of_labels, self.vectors = np.rint(rows_of_labels / 2), np.rint(self.vectors)
        self.index = InnerProductIndex(rows_of_labels.astype(np.float32), labels)

    def brute_force(self, k: int) -> Ranking:
        """The oracle: float64 products, rounded once, plus log p_n; Python's sort of all labels."""
        exact = (
            self.index.vectors.astype(np.float64)[None] * self.vectors.astype(np.float64)[:, None]
        )
        corrections = self.tree.log_probs(self.tree.project(torch.from_numpy(self.vectors))).numpy()
        totals = exact.sum(axis=2).astype(np.float32) + corrections[:, self.index.labels]
        labels = np.full((len(totals), k), NO_LABEL, dtype=np.int64)
        scores = np.full((len(totals), k), -np.inf, dtype=np.float32)
        for row, total in enumerate(totals):
            order = sorted(zip((-total).tolist(), self.index.labels.tolist(), strict=True))[:k]
            labels[row, : len(order)] = [label for _, label in order]
            scores[row, : len(order)] = [-negated for negated, _ in order]
        return Ranking(labels, scores)

    def both_ways(self, k: int) -> list[Ranking]:
        found = []
        for most in (0, len(self.index)):
            with (
                mock.patch("longtail.models.ranking.exhaustive._BY_MATRIX_UP_TO", most),
                mock.patch("longtail.models.ranking.exhaustive._ALWAYS_UP_TO", 0),
            ):
                sources = corrected_sources(*self.bound)
                assert len(sources) == (1 if most else 2)
                found.append(rank([sources], SUM, k, self.tree.num_labels))
        return found

    @property
    def bound(self) -> tuple[InnerProductIndex, np.ndarray, LabelTree, np.ndarray]:
        return self.index, self.vectors, self.tree, self.vectors


def assert_same(found: Ranking, wanted: Ranking) -> None:
    np.testing.assert_array_equal(found.labels, wanted.labels)
    np.testing.assert_array_equal(found.scores, wanted.scores)  # to the bit


@given(
    st.integers(1, 70), st.integers(0, 2**16), st.booleans(), st.sampled_from([0.1, 0.6, 1.0]),
    st.data(),
)  # fmt: skip
@settings(max_examples=60)
def test_both_ways_are_brute_force(size, seed, tied, share, data):
    problem = Problem(size, seed, tied=tied, share=share)
    k = data.draw(st.integers(1, size), label="k")
    for found in problem.both_ways(k):
        assert_same(found, problem.brute_force(k))


@pytest.mark.parametrize("size", [1000, 1024, 3001])
@pytest.mark.parametrize("tied", [False, True])
def test_both_ways_are_brute_force_on_more_labels(size, tied):
    problem = Problem(size, seed=size, tied=tied)
    for k in (1, 5, 100, size):
        for found in problem.both_ways(k):
            assert_same(found, problem.brute_force(k))


def test_scores_that_float32_products_confuse_are_told_apart():
    problem = Problem(200, seed=1, share=1.0)
    vectors = problem.index.vectors.copy()
    vectors[:, 0] += 1e5  # the same for all labels: it hides the rest from float32 sums
    problem.index = InnerProductIndex(vectors, problem.index.labels)
    for found in problem.both_ways(7):
        assert_same(found, problem.brute_force(7))


def test_both_ways_score_given_labels_as_they_rank_them():
    problem = Problem(60, seed=4, share=0.7)
    best, rows = problem.brute_force(9), np.arange(3)
    source = CorrectedSource(*problem.bound)
    assert isinstance(source, Source) and source.num_labels == len(problem.index)
    np.testing.assert_array_equal(source.score(rows, best.labels), best.scores)
    unknown = np.setdiff1d(np.arange(60), problem.index.labels)[None].repeat(3, axis=0)
    assert np.isneginf(source.score(rows, unknown)).all()
    assert np.isneginf(source.score(rows, np.full((3, 1), NO_LABEL))).all()
