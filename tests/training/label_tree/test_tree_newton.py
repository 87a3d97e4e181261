"""Newton ascent of many nodes at once against scipy's optimiser, node by node."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from training.label_tree.batched_newton import (
    NodeAscent,
    cut_into_chunks,
    segments_of,
    sums_of_runs,
)

COUNTS = st.lists(st.integers(0, 40), min_size=1, max_size=6)


def nodes_of(counts: list[int]) -> torch.Tensor:
    return torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))


def optimum(features: np.ndarray, totals: np.ndarray, right: np.ndarray, strength: float) -> float:
    """The oracle: the largest objective of one node."""

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        scores = features @ weights
        value = right @ np.logaddexp(0, -scores) + (totals - right) @ np.logaddexp(0, scores)
        residual = right - totals / (1 + np.exp(-scores))
        gradient = 2 * strength * weights - features.T @ residual
        return value + strength * weights @ weights, gradient

    found = minimize(loss, np.zeros(features.shape[1]), jac=True, options={"gtol": 1e-8})
    return -float(found.fun)


@given(COUNTS, st.integers(0, 999), st.sampled_from([0.3, 1.0, 10.0]), st.floats(0.01, 10))
@settings(max_examples=40)
def test_each_node_reaches_its_optimum_for_one_split_after_another(
    counts, seed, scale, strength
) -> None:
    rng = np.random.default_rng(seed)
    nodes = nodes_of(counts)
    features = torch.from_numpy(scale * rng.standard_normal((len(nodes), 3))).float()
    totals = torch.from_numpy(rng.integers(1, 4, len(nodes))).float()
    segments, slots = segments_of(features, totals, nodes, len(counts))
    ascent = NodeAscent(segments, strength)
    is_open = torch.ones(len(counts), dtype=torch.bool)
    for _ in range(3):
        right = torch.floor(totals * torch.from_numpy(rng.random(len(nodes))).float() * 1.5)
        right = right.clamp(max=totals)
        in_chunks = torch.zeros_like(segments.totals).flatten()
        in_chunks[slots] = right
        in_chunks = in_chunks.view_as(segments.totals)
        ascent.ascend(in_chunks, is_open, torch.full((len(counts),), 1e-5).double())
        penalty = strength * ascent.weights.square().sum(1)
        found = ascent.log_likelihoods(in_chunks) - penalty
        for node in range(len(counts)):
            part = nodes == node
            arrays = (x[part].double().numpy() for x in (features, totals, right))
            assert float(found[node]) == pytest.approx(optimum(*arrays, strength), abs=1e-3)


def test_closed_nodes_stay_where_they_are() -> None:
    features = torch.ones((4, 1))
    segments, _ = segments_of(features, torch.ones(4), torch.tensor([0, 0, 1, 1]), 2)
    ascent = NodeAscent(segments, 0.1)
    is_open = torch.tensor([False, True])
    ascent.ascend(segments.totals.clone(), is_open, torch.zeros(2, dtype=torch.float64) + 1e-6)
    assert (ascent.weights != 0).tolist() == [[False], [True]]


def test_an_ascent_ends_where_rounding_hides_the_optimum() -> None:
    rng = np.random.default_rng(0)
    features = torch.from_numpy(1e4 * rng.standard_normal((300, 2))).float()
    segments, _ = segments_of(features, torch.ones(300), torch.zeros(300, dtype=torch.int64), 1)
    ascent = NodeAscent(segments, 1e-12)
    right = torch.from_numpy(rng.integers(0, 2, segments.totals.shape)).float() * segments.totals
    ascent.ascend(right, torch.tensor([True]), torch.tensor([0.0], dtype=torch.float64))
    assert bool(ascent.weights.isfinite().all())


@given(COUNTS)
def test_chunks_hold_every_row_once_and_one_node_each(counts: list[int]) -> None:
    rows = nodes_of(counts)
    slots, chunk_nodes, length = cut_into_chunks(rows, len(counts))
    assert len(set(slots.tolist())) == len(rows)
    assert torch.equal(chunk_nodes[slots // length], rows)
    assert len(chunk_nodes) == sum(-(-count // length) for count in counts)


@given(COUNTS)
def test_runs_are_summed_also_where_they_are_empty(counts: list[int]) -> None:
    values = torch.arange(2 * sum(counts), dtype=torch.float64).view(-1, 2)
    wanted = torch.zeros(len(counts), 2, dtype=torch.float64).index_add_(
        0, nodes_of(counts), values
    )
    assert torch.equal(sums_of_runs(values, torch.tensor(counts)), wanted)


def test_outer_products_are_summed_over_the_rows_of_a_node() -> None:
    rng = np.random.default_rng(0)
    nodes = nodes_of([3, 0, 50])
    features = torch.from_numpy(rng.standard_normal((53, 4))).float()
    totals = torch.from_numpy(rng.random(53)).float()
    segments, _ = segments_of(features, totals, nodes, 3)
    found = segments.gram(segments.totals)
    for node in range(3):
        part = features[nodes == node]
        wanted = part.T @ (part * totals[nodes == node, None])
        np.testing.assert_allclose(found[node], wanted, rtol=1e-5, atol=1e-5)
