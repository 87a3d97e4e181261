"""The fit of the label tree against one written per node, straight from the paper."""

from dataclasses import dataclass
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse import coo_array, csr_array
from scipy.special import expit, log_expit

from longtail.models.errors import ConfigError, DataError
from longtail.training.label_tree.fit import FittedTree, fit_tree, principal_components
from longtail.training.label_tree.levels import GrownTree, NodeArrays, fit_nodes, grow_tree
from tests.closeness import assert_all_close


@dataclass(frozen=True)
class Problem:
    """Pairs of features with a 1 behind them, and labels."""

    features: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


def reference_log_likelihood(features: np.ndarray, truth: csr_array, regulariser: float) -> float:
    """Return the log likelihood of the tree that a fit per node gives (Eq. 7-9 and its details)."""
    pairs = coo_array(truth)
    augmented = np.column_stack([features, np.ones(len(features))]).astype(np.float64)
    problem = Problem(augmented[pairs.row], pairs.col, pairs.data.astype(np.float64))
    num_labels = truth.shape[1]
    capacity = 1
    while capacity < num_labels:
        capacity *= 2
    return reference_node(problem, np.arange(num_labels), capacity, regulariser)


def reference_node(
    problem: Problem, labels: np.ndarray, capacity: int, regulariser: float
) -> float:
    """Return the log likelihood below a node, the node's own included."""
    if len(labels) <= 1:
        return 0.0
    chosen = np.isin(problem.labels, labels)
    problem = Problem(problem.features[chosen], problem.labels[chosen], problem.weights[chosen])
    sums = np.zeros((len(labels), problem.features.shape[1]))
    index = np.searchsorted(labels, problem.labels)
    np.add.at(sums, index, problem.features * problem.weights[:, None])
    centred = (sums - sums.mean(axis=0))[:, :-1]
    direction = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    is_right = halves(centred @ direction, len(labels) // 2, capacity)
    weights = np.zeros(sums.shape[1])
    for _ in range(100):
        if is_right.all() or not is_right.any():
            own = 0.0
            break
        weights = newton(problem, is_right[index], weights, regulariser)
        signs = np.where(is_right[index], 1.0, -1.0)
        own = -(problem.weights * np.logaddexp(0, -signs * (problem.features @ weights))).sum()
        gains = sums @ weights  # Eq. 9
        middle = max((gains < 0).sum(), min((gains <= 0).sum(), len(labels) // 2))
        better = halves(gains, middle, capacity)
        if (better == is_right).all():
            break
        is_right = better
    half = capacity // 2
    return (
        own
        + reference_node(problem, labels[~is_right], half, regulariser)
        + reference_node(problem, labels[is_right], half, regulariser)
    )


def halves(scores: np.ndarray, num_left: int, capacity: int) -> np.ndarray:
    """Split labels by score; padding takes what room is left."""
    half = capacity // 2
    num_left = min(max(num_left, len(scores) - half), half)
    is_right = np.ones(len(scores), dtype=bool)
    is_right[np.argsort(scores, kind="stable")[:num_left]] = False
    return is_right


def newton(
    problem: Problem, is_right: np.ndarray, weights: np.ndarray, regulariser: float
) -> np.ndarray:
    """Return the maximum of Eq. 8 minus the regulariser, to machine precision."""

    def objective(at: np.ndarray) -> float:
        signs = np.where(is_right, 1.0, -1.0)
        terms = np.logaddexp(0, -signs * (problem.features @ at))
        return -(problem.weights * terms).sum() - regulariser * (at**2).sum()

    for _ in range(200):
        probability = 1 / (1 + np.exp(-(problem.features @ weights)))
        residual = problem.weights * (is_right - probability)
        gradient = problem.features.T @ residual - 2 * regulariser * weights
        curvature = problem.weights * probability * (1 - probability)
        hessian = (problem.features * curvature[:, None]).T @ problem.features
        hessian += 2 * regulariser * np.eye(len(weights))
        step = np.linalg.solve(hessian, gradient)
        if gradient @ step < 1e-9:
            break
        before = objective(weights)
        while objective(weights + step) < before - 1e-9 * abs(before):
            step = step / 2
        weights = weights + step
    return weights


def corpus(
    num_documents: int = 300, num_labels: int = 21, dim: int = 6, seed: int = 0, noise: float = 0.5
) -> tuple[np.ndarray, csr_array]:
    """Documents near one of some centres, with one to three labels of their centre."""
    rng = np.random.default_rng(seed)
    popularity = 1 / np.arange(1, num_labels + 1)
    centres = rng.standard_normal((num_labels, dim))
    first = rng.choice(num_labels, num_documents, p=popularity / popularity.sum())
    vectors = centres[first] + noise * rng.standard_normal((num_documents, dim))
    truth = np.zeros((num_documents, num_labels), dtype=np.float32)
    truth[np.arange(num_documents), first] = 1
    nearest = np.linalg.norm(centres[:, None] - centres, axis=2).argsort(axis=1)
    for place in (1, 2):
        carriers = np.flatnonzero(rng.random(num_documents) < 0.4)
        truth[carriers, nearest[first[carriers], min(place, num_labels - 1)]] = 1
    return vectors.astype(np.float32), csr_array(truth)


def features_of(fitted: FittedTree, vectors: np.ndarray) -> torch.Tensor:
    return fitted.tree.project(torch.from_numpy(vectors))


def reference_of(fitted: FittedTree, vectors: np.ndarray, truth: csr_array) -> float:
    features = features_of(fitted, vectors).numpy()
    return reference_log_likelihood(features, truth, fitted.regulariser) / truth.data.sum()


def frequency_log_likelihood(truth: csr_array) -> float:
    counts = truth.sum(axis=0)
    shares = counts[counts > 0] / counts.sum()
    return float((shares * np.log(shares)).sum())


def test_the_likelihood_is_no_less_than_the_reference_s():
    ours, references, frequencies = [], [], []
    for seed in range(12):
        vectors, truth = corpus(num_documents=400, num_labels=20 + 7 * seed, seed=seed)
        fitted = fit_tree(vectors, truth, num_components=4, regulariser=0.1)
        ours.append(fitted.log_likelihood)
        references.append(reference_of(fitted, vectors, truth))
        frequencies.append(frequency_log_likelihood(truth))
    assert ours == pytest.approx(references, rel=0.05)  # each is another local maximum
    assert np.mean(ours) > 1.001 * np.mean(references)
    assert np.mean(ours) > np.mean(frequencies) + 0.5


def test_a_node_with_many_documents_is_fitted_to_all_of_them():
    # More than the 8,192 that such a node is first split by; label after label.
    vectors, truth = corpus(num_documents=12_000, num_labels=7, seed=3)
    order = truth.argmax(axis=1).argsort(kind="stable")
    vectors, truth = vectors[order], truth[order]
    fitted = fit_tree(vectors, truth, num_components=4, regulariser=0.1)
    assert_every_node_is_at_an_optimum(fitted, vectors, truth)
    assert fitted.log_likelihood > 1.01 * reference_of(fitted, vectors, truth)


@given(st.integers(1, 40), st.integers(0, 1000))
@settings(max_examples=12)
def test_the_likelihood_is_that_of_the_tree_in_use(num_labels, seed):
    vectors, truth = corpus(60, num_labels, seed=seed)
    fitted = fit_tree(vectors, truth, num_components=3, regulariser=0.1)
    pairs = coo_array(truth)
    found = fitted.tree.log_likelihood(
        features_of(fitted, vectors),
        torch.from_numpy(pairs.row.astype(np.int64)),
        torch.from_numpy(pairs.col.astype(np.int64)),
        torch.from_numpy(pairs.data),
    )
    assert fitted.log_likelihood == pytest.approx(found / pairs.nnz, rel=1e-5)
    assert fitted.tree.num_labels == num_labels
    total = fitted.tree.log_probs(features_of(fitted, vectors)).double().exp().sum(1)
    assert_all_close(total, 1, rtol=1e-5)


@pytest.mark.parametrize("num_labels", [3, 16, 21, 33])
def test_every_node_is_at_an_optimum_of_its_weights_and_of_its_split(num_labels):
    vectors, truth = corpus(num_labels=num_labels, seed=7)
    fitted = fit_tree(vectors, truth, num_components=3, regulariser=0.2)
    assert_every_node_is_at_an_optimum(fitted, vectors, truth)


def assert_every_node_is_at_an_optimum(
    fitted: FittedTree, vectors: np.ndarray, truth: csr_array
) -> None:
    features = features_of(fitted, vectors).double().numpy()
    augmented = np.column_stack([features, np.ones(len(features))])
    pairs = coo_array(truth)
    for labels_left, labels_right, capacity, weights in split_nodes_of(fitted):
        labels = np.concatenate([labels_left, labels_right])
        chosen = np.isin(pairs.col, labels)
        problem = Problem(augmented[pairs.row[chosen]], pairs.col[chosen], pairs.data[chosen])
        is_right = np.isin(problem.labels, labels_right)
        best = newton(problem, is_right, weights, fitted.regulariser)
        scores = problem.features @ weights, problem.features @ best
        np.testing.assert_allclose(*scores, atol=0.05)
        if len(labels) == capacity == 2:
            continue  # there is no other split
        gains = np.array([scores[0][problem.labels == label].sum() for label in labels])
        num_left = np.clip((gains < 0).sum(), len(labels) - capacity // 2, capacity // 2)
        assert set(labels[np.argsort(gains)[:num_left]]) == set(labels_left)


def split_nodes_of(fitted: FittedTree):
    """Yield labels on either side, capacity, and w with b, of nodes with labels on both sides."""
    tree = fitted.tree
    for node in range(len(tree.biases)):
        level = (node + 1).bit_length() - 1
        capacity = 2 ** (tree.depth - level)
        start = (node + 1 - 2**level) * capacity
        leaves = tree.label_of_leaf[start : start + capacity].numpy()
        sides = [side[side >= 0] for side in (leaves[: capacity // 2], leaves[capacity // 2 :])]
        if all(len(side) for side in sides):
            yield *sides, capacity, np.append(tree.weights[node], tree.biases[node]).astype(float)


def test_the_first_split_is_in_the_middle_of_the_dominant_direction():
    vectors, truth = corpus(num_labels=12, seed=3)
    with mock.patch("longtail.training.label_tree.levels._MAX_ROUNDS", 0):
        fitted = fit_tree(vectors, truth, num_components=3, regulariser=0.2)
    sums = truth.T @ features_of(fitted, vectors).double().numpy()
    direction = np.linalg.svd(sums - sums.mean(axis=0))[2][0]
    order = np.argsort(sums @ direction)
    left, right = next(split_nodes_of(fitted))[:2]
    assert {frozenset(left), frozenset(right)} == {frozenset(order[:6]), frozenset(order[6:])}


def test_the_fit_is_the_same_again_and_in_other_blocks():
    vectors, truth = corpus(num_labels=70)
    first, again = (fit_tree(vectors, truth, regulariser=0.1, num_components=4) for _ in range(2))
    for name, array in first.tree.to_arrays().items():
        np.testing.assert_array_equal(array, again.tree.to_arrays()[name])
    with mock.patch("longtail.training.label_tree.levels._BLOCK_COST", 100):
        in_blocks = fit_tree(vectors, truth, regulariser=0.1, num_components=4)
    assert torch.equal(in_blocks.tree.label_of_leaf, first.tree.label_of_leaf)
    np.testing.assert_allclose(in_blocks.tree.weights, first.tree.weights, atol=1e-3)


def test_a_weight_of_two_is_a_pair_twice_and_a_weight_of_zero_is_none():
    vectors, truth = corpus(num_labels=9)
    rng = np.random.default_rng(0)
    times = rng.integers(0, 3, truth.nnz)
    weighted = truth.copy()
    weighted.data = times.astype(np.float32)
    pairs = coo_array(truth)
    rows = np.repeat(pairs.row, times)
    repeated = csr_array(
        (np.ones(len(rows), np.float32), (rows, np.repeat(pairs.col, times))), shape=truth.shape
    )
    found = fit_tree(vectors, weighted, num_components=3, regulariser=0.1)
    wanted = fit_tree(vectors, repeated, num_components=3, regulariser=0.1)
    assert found.log_likelihood == pytest.approx(wanted.log_likelihood, abs=1e-6)
    assert torch.equal(found.tree.label_of_leaf, wanted.tree.label_of_leaf)


def test_small_weights_are_fitted_like_large_ones():
    vectors, truth = corpus(num_labels=9)
    large = fit_tree(vectors, truth, num_components=3, regulariser=0.1)
    small = fit_tree(vectors, truth * np.float32(1e-6), num_components=3, regulariser=1e-7)
    assert small.log_likelihood == pytest.approx(large.log_likelihood, abs=1e-4)


@pytest.mark.parametrize("num_labels", [2, 5, 8])
def test_constant_vectors_give_the_label_frequencies(num_labels):
    truth = corpus(num_labels=num_labels)[1]
    vectors = np.full((truth.shape[0], 4), 3.5, dtype=np.float32)
    fitted = fit_tree(vectors, truth, num_components=2, regulariser=1e-6)
    counts = truth.sum(axis=0)
    found = fitted.tree.log_probs(features_of(fitted, vectors[:1])).exp()[0]
    np.testing.assert_allclose(found, counts / counts.sum(), rtol=1e-2, atol=1e-6)
    assert fitted.log_likelihood == pytest.approx(frequency_log_likelihood(truth), abs=1e-4)


def test_principal_components_are_those_of_a_singular_value_decomposition():
    vectors = corpus(dim=7)[0] * np.linspace(1, 3, 7, dtype=np.float32) + 2
    with mock.patch("longtail.training.label_tree.fit._DOCUMENTS_AT_A_TIME", 100):
        mean, components = principal_components(torch.from_numpy(vectors), 4)
    centred = vectors.astype(np.float64) - vectors.mean(axis=0)
    wanted = np.linalg.svd(centred)[2][:4]
    directions = components / components.norm(dim=1, keepdim=True)
    assert_all_close(np.abs((directions.numpy() * wanted).sum(axis=1)), 1, rtol=1e-5)
    assert_all_close(mean, vectors.mean(axis=0), rtol=1e-5)
    assert np.square(centred @ components.numpy().T).mean() == pytest.approx(1, rel=1e-5)
    assert bool((components.gather(1, components.abs().argmax(1, keepdim=True)) > 0).all())


def test_cross_validation_takes_a_weak_regulariser_where_vectors_tell_and_a_strong_else():
    vectors, truth = corpus(240, 8, noise=0.1)
    told = fit_tree(vectors, truth, num_components=4)
    shuffled = np.random.default_rng(1).permutation(vectors)
    untold = fit_tree(shuffled, truth, num_components=4)
    assert told.regulariser < untold.regulariser


def test_held_out_likelihoods_are_those_of_trees_fitted_without_the_documents():
    vectors, truth = corpus(24, 5)
    with (
        mock.patch("longtail.training.label_tree.fit._NUM_FOLDS", 24),  # each document is a fold
        mock.patch("longtail.training.label_tree.fit._EXPONENTS", range(1)),
    ):
        found = fit_tree(vectors, truth, num_components=6, seed=4).held_out
    features = features_of(fit_tree(vectors, truth, num_components=6, regulariser=1.0), vectors)
    total = 0.0
    for left_out in range(24):
        kept = np.arange(24) != left_out
        grown = grow_tree(features[kept], truth[kept], 1.0)
        for label in truth[[left_out]].indices:
            total += path_log_probability(grown, features[left_out].numpy(), label)
    assert found == pytest.approx({1.0: total / truth.nnz}, rel=1e-4)


def path_log_probability(grown: GrownTree, features: np.ndarray, label: int) -> float:
    node = int(np.flatnonzero(grown.label_of_leaf == label)[0]) + len(grown.biases)
    total = 0.0
    while node:
        parent, sign = (node - 1) // 2, 1 if node % 2 == 0 else -1
        total -= np.logaddexp(0, -sign * (grown.weights[parent] @ features + grown.biases[parent]))
        node = parent
    return total


def test_a_vector_that_is_not_finite_is_named():
    vectors, truth = corpus(20, 3)
    vectors[[4, 9], 2] = np.nan
    words = "2 of 20 document vectors are not finite, the first in row 4"
    with pytest.raises(DataError, match=words):
        fit_tree(vectors, truth, num_components=2, regulariser=0.1)
    with pytest.raises(ConfigError, match="dimensions"):
        fit_tree(vectors, truth, num_components=vectors.shape[1] + 1)


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=40))
def test_half_of_the_labels_go_left_the_lowest_and_of_equal_ones_the_first(values):
    sums = np.array(values, dtype=float)
    nodes = nodes_of(np.zeros((0, 1)), np.zeros((0, len(sums))), np.column_stack([sums, sums]))
    goes_right = fit_node(nodes, 64, most_rounds=0)[1]
    if sums.min() < sums.max():  # or else there is no direction
        lowest = np.argsort(sums, kind="stable")[: len(sums) // 2]
        assert set(np.flatnonzero(~goes_right)) == set(lowest)


@pytest.mark.parametrize(("num_rows", "num_features"), [(1, 1), (60, 4), (150, 8), (128, 16)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])
def test_the_weights_of_two_labels_are_those_of_the_optimum(num_rows, num_features, scale):
    x, counts = rows_of(num_rows, num_features, scale)
    value, goes_right, weights = fit_node(nodes_of(x, counts), 2, strength=0.3)
    right = counts @ goes_right.astype(float)
    augmented = np.column_stack([x, np.ones(num_rows)])

    def log_likelihood(weights: np.ndarray) -> float:
        scores = augmented @ weights
        return right @ log_expit(scores) + (counts.sum(1) - right) @ log_expit(-scores)

    def loss(weights: np.ndarray) -> float:
        return 0.3 * weights @ weights - log_likelihood(weights)

    best = minimize(loss, weights, options={"gtol": 1e-6})
    assert loss(weights) == pytest.approx(best.fun, abs=1e-6 * float(counts.sum()), rel=1e-6)
    assert value == pytest.approx(log_likelihood(weights), abs=1e-5 * float(counts.sum()))


def test_two_labels_with_very_many_rows_are_fitted_to_all_of_them():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8193, 4)).astype(np.float32)
    is_second = rng.random(8193) < expit(x @ np.array([1.0, -0.5, 0.3, 0.0]) + 0.4)
    counts = np.column_stack([~is_second, is_second]).astype(float)
    value, goes_right, weights = fit_node(nodes_of(x, counts), 2, strength=1.0)
    right, augmented = counts @ goes_right.astype(float), np.column_stack([x, np.ones(len(x))])

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        scores = augmented @ weights
        signs = np.where(right, scores, -scores)
        gradient = augmented.T @ (right - expit(scores)) - 2 * weights
        return weights @ weights - log_expit(signs).sum(), -gradient

    options = {"ftol": 1e-15, "gtol": 1e-9}
    best = minimize(loss, np.zeros(5), jac=True, method="L-BFGS-B", options=options)
    assert loss(weights)[0] == pytest.approx(best.fun, abs=1e-6 * len(x))
    assert value == pytest.approx(weights @ weights - loss(weights)[0], abs=1e-6 * len(x))


def rows_of(num_rows: int, num_features: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Random features, and how often each row carries either of two labels."""
    rng = np.random.default_rng(num_features)
    x = (scale * rng.standard_normal((num_rows, num_features))).astype(np.float32)
    return x, rng.integers(0, 3, (num_rows, 2)).astype(float)


def nodes_of(x: np.ndarray, weights: np.ndarray, sums: np.ndarray | None = None) -> NodeArrays:
    """One node to which every row brings a pair with each label, of such weights."""
    augmented = np.column_stack([x, np.ones(len(x))]).astype(np.float32)
    num_rows, num_labels = weights.shape
    return NodeArrays(
        features=augmented,
        row_starts=np.array([0, num_rows]),
        row_documents=np.arange(num_rows),
        pair_starts=np.arange(num_rows + 1) * num_labels,
        pair_labels=np.tile(np.arange(num_labels), num_rows),
        pair_weights=weights.astype(np.float32).ravel(),
        label_starts=np.array([0, num_labels]),
        label_sums=weights.T.astype(float) @ augmented if sums is None else sums,
    )


def fit_node(
    nodes: NodeArrays, capacity: int, strength: float = 0.1, most_rounds: int = 100
) -> tuple[float, np.ndarray, np.ndarray]:
    """Eq. 8, which labels go right, and the weights."""
    weights, value = np.zeros((1, nodes.label_sums.shape[1])), np.zeros(1)
    goes_right = np.zeros(len(nodes.label_sums), dtype=bool)
    fit_nodes(nodes, capacity, strength, most_rounds, weights, goes_right, value)
    return float(value[0]), goes_right, weights[0]
