"""The label tree against enumeration of all paths."""

from contextlib import AbstractContextManager, nullcontext
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from longtail.models.errors import BundleCorruptError
from longtail.models.label_tree.corrected_top_k import TreeSource
from longtail.models.label_tree.tree import LabelTree, depth_of, one_sided_biases
from longtail.models.ranking.threshold_algorithm import SUM, rank
from longtail.models.ranking.top_k import NO_LABEL, top_of_scores
from tests.closeness import assert_all_close
from tests.rankings import assert_same

DIM = 5
SIZES = st.integers(1, 70)
SEEDS = st.integers(0, 2**16)


def as_on_a_gpu() -> AbstractContextManager:
    return mock.patch.object(LabelTree, "uses_kernels", False)


@pytest.fixture(params=["compiled loops", "PyTorch"], autouse=True, scope="module")
def way(request):
    """Every test runs with the loops of a CPU, and with what a GPU runs."""
    with nullcontext() if request.param == "compiled loops" else as_on_a_gpu():
        yield


def arrays_of(num_labels: int, k: int = 3, seed: int = 0, scale: float = 1.0) -> dict:
    """A random tree; padding is anywhere."""
    rng = np.random.default_rng(seed)
    num_leaves = 2 ** depth_of(num_labels)
    label_of_leaf = np.full(num_leaves, NO_LABEL, dtype=np.int64)
    label_of_leaf[rng.permutation(num_leaves)[:num_labels]] = rng.permutation(num_labels)
    forced = one_sided_biases((label_of_leaf != NO_LABEL).astype(np.int64))
    biases = (scale * rng.standard_normal(num_leaves - 1)).astype(np.float32)
    weights = scale * rng.standard_normal((num_leaves - 1, k))
    return {
        "mean": rng.standard_normal(DIM).astype(np.float32),
        "components": rng.standard_normal((k, DIM)).astype(np.float32),
        "weights": weights.astype(np.float32),
        "biases": np.where(np.isinf(forced), forced, biases),
        "label_of_leaf": label_of_leaf,
    }


def tree_of(num_labels: int, k: int = 3, seed: int = 0, scale: float = 1.0) -> LabelTree:
    return LabelTree.from_arrays(arrays_of(num_labels, k, seed, scale))


def vectors_of(rows: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, DIM)).astype(np.float32)


def features_of(tree: LabelTree, rows: int, seed: int = 1) -> torch.Tensor:
    return tree.project(torch.from_numpy(vectors_of(rows, seed)))


def enumerated(tree: LabelTree, features: torch.Tensor) -> np.ndarray:
    """The oracle: p_n of all leaves, padding too, by walking from each leaf up to the root."""
    probabilities = np.ones((len(features), len(tree.label_of_leaf)))
    for row, x in enumerate(features.double().numpy()):
        for leaf in range(len(tree.label_of_leaf)):
            node = leaf + len(tree.biases)
            while node:
                parent, is_right = (node - 1) // 2, node % 2 == 0
                score = tree.weights[parent].double().numpy() @ x + float(tree.biases[parent])
                sign = 1 if is_right else -1
                probabilities[row, leaf] *= np.exp(-np.logaddexp(0, -sign * score))
                node = parent
    return probabilities


@given(SIZES, SEEDS)
def test_real_labels_have_the_enumerated_probabilities_and_padding_none(size, seed):
    tree = tree_of(size, seed=seed)
    features = features_of(tree, 2)
    leaves = enumerated(tree, features)
    is_padding = (tree.label_of_leaf == NO_LABEL).numpy()
    assert not leaves[:, is_padding].any()
    found = tree.log_probs(features)
    assert found.shape == (2, size)
    assert_all_close(found.double().exp(), leaves[:, tree.leaf_of_label.numpy()], rtol=1e-5)
    assert_all_close(found.double().exp().sum(1), 1, rtol=1e-5)


@given(SIZES, SEEDS, st.integers(1, 9))
def test_given_labels_have_the_log_probability_of_all_labels_to_the_bit(size, seed, k):
    tree = tree_of(size, k, seed)
    features = features_of(tree, 4)
    labels = torch.from_numpy(np.random.default_rng(seed).integers(0, size, (4, 7)))
    found = tree.log_prob(features, labels)
    assert torch.equal(found, tree.log_probs(features).gather(1, labels))
    for row in range(4):  # whatever batch they are in
        assert torch.equal(found[row : row + 1, 2:3], tree.log_prob(*one_of(features, labels, row)))


def one_of(features: torch.Tensor, labels: torch.Tensor, row: int) -> tuple:
    return features[row : row + 1].clone(), labels[row : row + 1, 2:3].clone()


@pytest.mark.parametrize("budget", [1, 2**20])
def test_a_vector_has_the_same_features_whatever_batch_it_is_in(budget):
    vectors = torch.from_numpy(vectors_of(9))
    tree = tree_of(4, k=3)
    with mock.patch("longtail.models.label_tree.tree._MAX_PRODUCTS", budget):
        together = tree.project(vectors)
    for row in range(9):
        assert torch.equal(tree.project(vectors[row : row + 1]), together[row : row + 1])
    wanted = (vectors - tree.mean).double() @ tree.components.double().T
    np.testing.assert_allclose(together, wanted, rtol=1e-5, atol=1e-6)


def test_the_log_likelihood_is_the_weighted_sum_over_pairs():
    tree = tree_of(11)
    features = features_of(tree, 3)
    documents, labels = torch.tensor([0, 2, 2, 1]), torch.tensor([10, 3, 3, 0])
    pair_weights = torch.tensor([1.0, 2.0, 0.5, 0.0])
    terms = tree.log_prob(features, labels.view(1, -1).expand(3, -1))[documents, range(4)]
    found = tree.log_likelihood(features, documents, labels, pair_weights)
    assert found == pytest.approx(float((terms * pair_weights).sum()), rel=1e-6)


@pytest.mark.parametrize(("size", "num"), [(2, 4000), (11, 8000), (37, 20_000)])
def test_draws_follow_the_probabilities(size, num):
    tree = tree_of(size, scale=0.7)
    features = features_of(tree, 2)
    drawn = tree.sample(features, num, torch.Generator().manual_seed(5))
    assert drawn.shape == (2, num)
    for row, probabilities in zip(drawn, tree.log_probs(features).double().exp(), strict=True):
        counts = torch.bincount(row, minlength=size)
        is_frequent = (probabilities * num > 5).numpy()
        rare = ~is_frequent
        found = np.append(counts.numpy()[is_frequent], counts.numpy()[rare].sum())
        wanted = num * np.append(probabilities[is_frequent], probabilities[rare].sum())
        kept = wanted > 0
        assert chisquare(found[kept], wanted[kept] * num / wanted.sum()).pvalue > 1e-3


@given(SIZES, SEEDS, st.sampled_from([0.3, 1.0, 30.0]))
def test_draws_come_with_their_log_probability(size, seed, scale):
    tree = tree_of(size, seed=seed, scale=scale)
    features = features_of(tree, 40)
    labels, log_probs = tree.sample_with_log_prob(features, 9, torch.Generator().manual_seed(seed))
    assert torch.equal(labels, tree.sample(features, 9, torch.Generator().manual_seed(seed)))
    wanted = tree.log_prob(features, labels)
    assert wanted.isfinite().all()
    torch.testing.assert_close(log_probs, wanted, rtol=1e-6, atol=1e-6)


def test_a_tree_of_one_label_is_sure_of_it():
    tree = tree_of(1)
    features = features_of(tree, 2)
    assert tree.depth == 0
    assert tree.log_probs(features).tolist() == [[0.0], [0.0]]
    assert tree.log_prob(features, torch.tensor([[0], [1]])).tolist() == [[0.0], [-np.inf]]
    labels, log_probs = tree.sample_with_log_prob(features, 3, torch.Generator())
    assert labels.tolist() == [[0, 0, 0]] * 2
    assert log_probs.tolist() == [[0.0, 0.0, 0.0]] * 2
    assert TreeSource(tree, vectors_of(2)).top(np.arange(2), 2).labels.tolist() == [[0, -1]] * 2


@given(SIZES, SEEDS, st.integers(1, 75), st.sampled_from([0.0, 0.3, 5.0, 100.0]))
def test_the_search_yields_what_a_sort_of_all_labels_yields(size, seed, m, scale):
    tree = tree_of(size, seed=seed, scale=scale)  # with scale 0, labels tie
    vectors = vectors_of(3, seed)
    source = TreeSource(tree, vectors)
    everything = tree.log_probs(tree.project(torch.from_numpy(vectors))).numpy()
    assert_same(source.top(np.arange(3), m), top_of_scores(everything, m))
    labels = np.broadcast_to(np.arange(-1, size + 1), (3, size + 2)).copy()
    np.testing.assert_array_equal(source.score(np.arange(3), labels)[:, 1:-1], everything)


@given(SIZES, SEEDS, st.integers(1, 12))
def test_the_sum_of_two_trees_is_ranked_exactly(size, seed, k):
    trees = tree_of(size, seed=seed), tree_of(size, seed=seed + 1)
    vectors = vectors_of(3, seed)
    with mock.patch("longtail.models.ranking.top_k._ALWAYS_UP_TO", 0):
        found = rank([[TreeSource(tree, vectors) for tree in trees]], SUM, k, size)
    first, second = (tree.log_probs(tree.project(torch.from_numpy(vectors))) for tree in trees)
    assert_same(found, top_of_scores((first + second).numpy(), k))


def broken(name: str, change) -> dict:
    arrays = arrays_of(5)
    arrays[name] = change(arrays[name].copy())
    return arrays


def with_value(array: np.ndarray, index: int, value: float) -> np.ndarray:
    array.flat[index] = value
    return array


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"mean": np.zeros(2)}, "array 'biases' is missing, expected biases, components"),
        (broken("mean", lambda x: x.astype(np.float64)), "mean is float64 with 1 axes, expected"),
        (broken("weights", lambda x: x[:6]), "weights has shape (6, 3), expected (7, 3)"),
        (broken("label_of_leaf", lambda x: x[:7]), "7 leaves for"),
        (broken("label_of_leaf", lambda x: np.where(x == 4, 9, x)), "each of 5 labels once"),
        (broken("components", lambda x: with_value(x, 3, np.nan)), "components has values"),
        (broken("biases", lambda x: with_value(x, 0, np.nan)), "biases are not infinite exactly"),
        (broken("biases", lambda x: np.where(np.isinf(x), 0, x)), "biases are not infinite"),
    ],
)
def test_arrays_that_are_no_tree_are_refused(arrays, words):
    with pytest.raises(BundleCorruptError, match="label tree: ") as caught:
        LabelTree.from_arrays(arrays)
    assert words in str(caught.value)
    assert "train again" in str(caught.value)


@given(SIZES, SEEDS, st.sampled_from([0.3, 5.0]))
def test_both_ways_give_the_same(size, seed, scale):
    tree = tree_of(size, seed=seed, scale=scale)
    features, labels = features_of(tree, 3), torch.arange(size).expand(3, -1)
    found = tree.log_probs(features), tree.log_prob(features, labels)
    with as_on_a_gpu():
        wanted = tree.log_probs(features), tree.log_prob(features, labels)
    for each, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(each, other, rtol=1e-6, atol=1e-7)


@pytest.mark.gpu
def test_a_gpu_gives_what_the_cpu_gives():
    tree = tree_of(1000, scale=0.5)
    vectors = vectors_of(50)
    there = tree.to("cuda")
    features = there.project(torch.from_numpy(vectors).cuda())
    assert_all_close(
        there.log_probs(features).cpu(), tree.log_probs(features_of(tree, 50)), rtol=1e-5
    )
    drawn = there.sample(features, 100, torch.Generator("cuda").manual_seed(0))
    assert int(drawn.min()) >= 0 and int(drawn.max()) < 1000
