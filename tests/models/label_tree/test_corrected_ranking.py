"""Corrected top-k against a sort of all labels, to the bit, on both ways to get it."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.models.label_tree import corrected_top_k
from longtail.models.label_tree.corrected_top_k import (
    CorrectedSource,
    IndexCorrection,
    NearLogProbs,
    corrected_sources,
)
from longtail.models.label_tree.kernels import log_prob_of_all_leaves
from longtail.models.label_tree.tree import LabelTree, depth_of, one_sided_biases
from longtail.models.labels.selection import Selection
from longtail.models.ranking.index import InnerProductIndex
from longtail.models.ranking.threshold_algorithm import SUM, rank
from longtail.models.ranking.top_k import NO_LABEL, Ranking, Source, top_of_candidates
from tests.closeness import assert_all_close
from tests.rankings import assert_same

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
        for most, few in ((0, 0), (len(self.index), 0), (len(self.index), len(self.vectors))):
            with (
                mock.patch("longtail.models.ranking.top_k._BY_MATRIX_UP_TO", most),
                mock.patch("longtail.models.ranking.top_k._ALWAYS_UP_TO", 0),
                mock.patch("longtail.models.label_tree.corrected_top_k._FEW", few),
            ):
                sources = corrected_sources(*self.bound)
                assert len(sources) == (1 if most else 2)
                found.append(rank([sources], SUM, k, self.tree.num_labels))
        return found

    @property
    def bound(self) -> tuple[IndexCorrection, np.ndarray, np.ndarray]:
        return IndexCorrection(self.index, self.tree), self.vectors, self.vectors


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


@pytest.mark.parametrize("size", [1, 2, 70, 1025, 6000])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("share", [0.05, 1.0])
def test_the_device_path_is_brute_force(as_on_gpu, size, tied, share):
    problem = Problem(size, seed=size, tied=tied, share=share)
    for k in {1, min(7, size), size, size + 3}:
        sources = corrected_sources(*problem.bound)
        assert len(sources) == 1
        found = rank([sources], SUM, k, problem.tree.num_labels)
        assert_same(found, problem.brute_force(k))


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 100.0, 1e20, 1e36])
@pytest.mark.parametrize("of_nodes", [1e-20, 1.0, 1e3, 1e18])
def test_tiny_and_huge_rows_and_nodes_are_ranked_exactly(as_on_gpu, scale, of_nodes):
    problem = Problem(300, seed=5, share=1.0)
    problem.tree = replace(problem.tree, weights=problem.tree.weights * of_nodes)
    rows = problem.index.vectors.copy()
    rows[::2] *= np.float32(scale)
    problem.index = InnerProductIndex(rows, problem.index.labels)
    source = CorrectedSource(*problem.bound)
    with np.errstate(over="ignore", invalid="ignore"):
        assert_same(source.top(np.arange(3), 9), problem.brute_force(9))


def test_the_device_path_with_filters_and_a_tail_dial(as_on_gpu):
    """As a query has them: one column more, and a selection of labels."""
    problem = Problem(3000, seed=8, share=1.0)
    priors = np.random.default_rng(0).normal(size=(3000, 1)).astype(np.float32)
    problem.index = InnerProductIndex(
        np.hstack([problem.index.vectors, priors]), problem.index.labels
    )
    is_selected = np.random.default_rng(1).random(3000) < 0.6
    labels = np.flatnonzero(is_selected).astype(np.int64)
    for dial in (0.0, 1.5):
        queries = np.hstack([problem.vectors, np.full((3, 1), -dial, np.float32)])
        sources = corrected_sources(
            IndexCorrection(problem.index, problem.tree), queries, problem.vectors
        )
        everything = np.tile(problem.index.labels, (3, 1))
        scores = sources[0].score(np.arange(3), everything)
        wanted = top_of_candidates(labels[None].repeat(3, 0), scores[:, labels], 12)
        with mock.patch("longtail.models.ranking.top_k._ALWAYS_UP_TO", 0):
            assert_same(rank([sources], SUM, 12, 3000, Selection(is_selected)), wanted)


@pytest.mark.parametrize("num_labels", [1, 2, 5, 100, 1000, 4097])
@pytest.mark.parametrize("scale", [1e-20, 1.0, 30.0, 3000.0])
def test_near_log_probs_are_within_their_bounds(num_labels, scale):
    tree = make_tree(num_labels, np.random.default_rng(num_labels), None)
    tree = replace(tree, weights=tree.weights * scale)
    features = torch.from_numpy(np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32))
    features *= torch.tensor([0, 1e-20, 1e-3, 1, 1, 1, 30, 1000.0])[:, None]
    near = NearLogProbs(tree)
    found = near.of(features)[:, tree.leaf_of_label].double()
    exact = torch.from_numpy(log_prob_of_all_leaves(tree.nodes, features.numpy()))
    exact = exact[:, tree.leaf_of_label]
    totals, margins = near.bounds(features)
    assert not found.isnan().any()  # infinite biases force paths away from padding
    assert ((found - exact).abs() <= margins[:, None]).all()
    assert (exact.abs() <= totals[:, None] * (1 + 1e-12)).all()
    if scale == 1.0 and num_labels > 2:
        assert (margins[3:6] < 1e-3).all()  # a bound of use


def test_parts_of_a_batch_give_what_the_whole_gives(as_on_gpu, monkeypatch):
    problem = Problem(200, seed=3, rows=20)
    whole = CorrectedSource(*problem.bound).top(np.arange(20), 5)
    monkeypatch.setattr(corrected_top_k, "MAX_LEAVES", {"cpu": 700})
    assert_same(CorrectedSource(*problem.bound).top(np.arange(20), 5), whole)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 70, 6000])
@pytest.mark.parametrize("tied", [False, True])
def test_a_gpu_answers_as_a_cpu_does(size, tied):
    """But for float64's logarithms, which libraries round differently in the last place."""
    problem = Problem(size, seed=size, tied=tied)
    index = InnerProductIndex(problem.index.vectors, problem.index.labels, device="cuda")
    bound = IndexCorrection(index, problem.tree), problem.vectors, problem.vectors
    found, wanted = rank([corrected_sources(*bound)], SUM, 5, size), problem.brute_force(5)
    assert_all_close(found.scores, wanted.scores, rtol=1e-6)
    if not tied:
        np.testing.assert_array_equal(found.labels, wanted.labels)
