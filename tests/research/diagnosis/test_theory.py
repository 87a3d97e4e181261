"""The theory of DEPL section 4: inequalities against simulation and exact probabilities."""

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

from longtail.models.parts.sparse_storage import read_sparse
from longtail.models.scorers.sparse import SparseModel
from longtail.models.scorers.tfidf import TfidfModel
from longtail.training.data.dataset import open_dataset
from longtail.training.sparse.descriptions import positive_weights
from research.diagnosis.theory import (
    keyword_bound,
    keyword_weights,
    least_margin,
    normalise,
    theorem_bound,
)

NUM_PROJECTIONS = 400


@pytest.fixture
def rng():
    return np.random.default_rng(20261121)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def projections(rng, dim, num_features, count=NUM_PROJECTIONS):
    """Gaussian matrices E with entries of variance 1/d, one after the other."""
    return (rng.normal(0, dim**-0.5, (dim, num_features)) for _ in range(count))


def model_of(weights, bias=None):
    weights = csr_array(np.asarray(weights, dtype=np.float32))
    num_labels, num_features = weights.shape
    tokens = [f"word{column}" for column in range(num_features)]
    bias = np.zeros(num_labels) if bias is None else np.asarray(bias)
    tfidf = TfidfModel(tokens, np.ones(num_features, dtype=np.float32))
    return SparseModel.of_rows(tfidf, weights, bias.astype(np.float32), np.arange(num_labels))


@pytest.fixture(scope="module")
def real(trained, tiny_corpus):
    """A trained sparse model, and the tf-idf rows of the demo documents of its dev split."""
    model = read_sparse(trained.bundle)
    return model, model.tfidf.transform(open_dataset(tiny_corpus).split("dev").texts())


def projection_bound(gamma, dim):
    """4 exp(-gamma^2 d/8), at most 1, on which Theorem 3 rests: for 0 < gamma <= 1.6."""
    return float(min(1.0, 4 * np.exp(-(gamma**2) * dim / 8)))


def share_moved(rng, a, b, gamma, dim):
    """How often a projection moves <a, b> by gamma/2 (||a||^2 + ||b||^2) or more, a pair a row."""
    limit = gamma / 2 * ((a**2).sum(axis=1) + (b**2).sum(axis=1))
    moved = [
        np.abs(((a @ e.T) * (b @ e.T)).sum(axis=1) - (a * b).sum(axis=1)) >= limit
        for e in projections(rng, dim, a.shape[1])
    ]
    return np.mean(moved, axis=0)


@pytest.mark.parametrize(("gamma", "dim"), [(0.4, 100), (0.8, 40), (1.6, 10)])
def test_projections_move_random_inner_products_no_oftener_than_bounded(rng, gamma, dim):
    a, b = unit(rng.normal(size=(30, 50))), 2 * rng.normal(size=(30, 50)) / 50**0.5
    b[:5] = a[:5]  # the worst case: both the same
    assert projection_bound(gamma, dim) < 0.6
    assert share_moved(rng, a, b, gamma, dim).max() <= projection_bound(gamma, dim)


@pytest.mark.parametrize("dim", [1, 3, 10, 100, 1000])
def test_the_bound_on_lengths_holds_up_to_a_gamma_of_1_6(dim):
    gammas = np.arange(1, 17) / 10
    exact = stats.chi2.sf((1 + gammas) * dim, dim) + stats.chi2.cdf((1 - gammas) * dim, dim)
    assert all(p <= projection_bound(gamma, dim) for p, gamma in zip(exact, gammas, strict=True))


def test_the_bound_on_lengths_does_not_hold_for_every_gamma():
    assert stats.chi2.sf(3 * 200, 200) > projection_bound(2.0, 200)


def test_keywords_lower_no_margin_by_more_than_delta_where_weights_are_not_negative(rng):
    weights = rng.uniform(0, 1, (12, 40)).astype(np.float32)
    documents = unit(rng.uniform(0, 1, (25, 40)) * (rng.random((25, 40)) < 0.4))
    keywords = keyword_weights(csr_array(weights), 6).toarray()
    scores, kept = documents @ weights.T, documents @ keywords.T
    delta = scores - kept
    fallen = (scores[:, :, None] - scores[:, None]) - (kept[:, :, None] - kept[:, None])
    assert delta.min() >= 0
    assert (fallen <= delta[:, :, None] + 1e-9).all()
    assert (np.abs(fallen) <= np.maximum(delta[:, :, None], delta[:, None]) + 1e-9).all()


def test_a_negative_weight_breaks_the_lemma():
    weights = np.array([[1.0, 0.0], [0.9, -0.9]])
    keywords = keyword_weights(csr_array(weights.astype(np.float32)), 1).toarray()
    document = np.array([0.6, 0.8])
    fallen = document @ (weights[0] - weights[1]) - document @ (keywords[0] - keywords[1])
    assert document @ (weights[0] - keywords[0]) == 0  # delta of the positive label
    assert fallen > 0.7


def test_projected_keywords_err_no_oftener_than_theorem_3_says(rng):
    weights = np.zeros((4, 12), dtype=np.float32)
    weights[0, :3] = (0.85, 0.4, 0.2)
    weights[1:, 3:] = unit(rng.uniform(0, 1, (3, 9)))
    document = unit(np.array([0.9, 0.4, 0.1, *[0.02] * 9]))
    keywords = keyword_weights(csr_array(weights), 2).toarray()
    epsilon = (document @ (weights[0] - weights[1:]).T).min()
    delta = document @ (weights[0] - keywords[0])
    (bound,) = theorem_bound(np.array([epsilon]), np.array([delta]), np.array([3]), 500)
    errors = [
        ((e @ document) @ (e @ (keywords[0] - keywords[1:]).T) <= 0).any()
        for e in projections(rng, 500, 12)
    ]
    assert bound < 0.05
    assert np.mean(errors) <= bound


def test_the_corollary_needs_the_logarithm_of_twice_the_negatives():
    num_negatives, dim = np.array([7]), 5000
    needed, printed = (10 * np.sqrt(np.log(m * num_negatives) / dim) for m in (2, 1))
    none = np.zeros(1)
    assert theorem_bound(needed, none, num_negatives, dim) == pytest.approx(1 / 7)
    assert theorem_bound(printed, none, num_negatives, dim) == pytest.approx(4 / 7)


def test_theorem_3_is_empty_with_384_dimensions_from_542_negatives_on():
    assert least_margin(541, 384) < 1 < least_margin(542, 384)
    margin = np.array([least_margin(300, 384)])
    assert theorem_bound(margin, np.zeros(1), np.array([300]), 384) == pytest.approx(1)


@pytest.mark.parametrize("dim", [1, 5, 50, 384])
def test_the_keyword_bound_is_above_the_exact_probability(dim):
    cosine = np.linspace(0.01, 0.99, 99)
    exact = stats.t.cdf(-np.sqrt(dim) * cosine / np.sqrt(1 - cosine**2), dim)
    assert (exact <= keyword_bound(cosine, dim)).all()


def test_projections_err_as_often_as_the_exact_probability_and_the_bound_say(rng):
    a, b = np.array([1.0, 0, 0]), np.array([0.3, np.sqrt(1 - 0.3**2), 0])
    wrong = [(e @ a) @ (e @ b) <= 0 for e in projections(rng, 20, 3, count=4000)]
    exact = stats.t.cdf(-np.sqrt(20) * 0.3 / np.sqrt(1 - 0.3**2), 20)
    assert np.mean(wrong) == pytest.approx(exact, abs=4 * np.sqrt(exact / 4000))
    assert np.mean(wrong) <= keyword_bound(np.array([0.3]), 20)


def test_the_keyword_bound_is_below_that_of_theorem_3():
    left = np.linspace(0.01, 1, 100)
    theirs = theorem_bound(left, np.zeros(100), np.ones(100, dtype=np.int64), 384)
    assert (keyword_bound(left / 2, 384) <= theirs).all()


def transformed(model, documents):
    """Documents and label vectors as `Normalisation` says, written out."""
    norm = normalise(model)
    constant = np.full((len(documents), 1), norm.constant)
    labels = model.weights.toarray() + norm.shift
    extra = norm.bias / norm.constant if norm.constant else norm.bias
    stretch = np.sqrt(1 + norm.constant**2)
    return (
        np.hstack([documents, constant]) / stretch,
        np.hstack([labels, extra[:, None]]) * stretch / norm.scale,
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_normalisation_meets_the_papers_conditions_and_keeps_margins(seed):
    rng = np.random.default_rng(seed)
    model = model_of(rng.normal(size=(9, 14)), rng.normal(size=9))
    documents = unit(np.abs(rng.normal(size=(11, 14))))
    x, w = transformed(model, documents)
    scores = documents @ model.weights.toarray().T + model.bias
    assert np.linalg.norm(x, axis=1) == pytest.approx(1)
    assert w.min() >= 0 and np.linalg.norm(w, axis=1).max() == pytest.approx(1)
    assert np.diff(x @ w.T) == pytest.approx(np.diff(scores) / normalise(model).scale, abs=1e-6)


@pytest.mark.parametrize("count", [1, 3, 100])
def test_keyword_weights_are_the_first_positive_weights(real, count):
    model, _ = real
    keywords = keyword_weights(model.weights, count)
    for row in range(0, len(model.labels), 17):
        columns, weights = (each[:count] for each in positive_weights(model.weights, row))
        expected = np.zeros(model.weights.shape[1], dtype=np.float32)
        expected[columns] = weights
        assert (keywords[[row]].toarray()[0] == expected).all()
