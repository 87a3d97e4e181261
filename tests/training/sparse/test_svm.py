"""Classifiers on working sets: against brute force, and against those trained on all documents."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats
from scipy.sparse import csr_array
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from longtail.training.configuration.sections import SparseConfig
from longtail.training.fitting import DevDocuments
from longtail.training.sparse import cost
from longtail.training.sparse.coordinate_descent import Plan, Rows, fit_chunk
from longtail.training.sparse.cost import with_cost_chosen
from longtail.training.sparse.fit import fit_sparse_model
from longtail.training.sparse.svm import SvmProblem, joined
from longtail.training.sparse.tfidf import fit_tfidf

NUM_DOCUMENTS, NUM_FEATURES, NUM_LABELS = 300, 80, 6
EVERY_LABEL = np.arange(NUM_LABELS)


def random_documents() -> tuple[csr_array, csr_array]:
    """Documents whose label decides which words are frequent: something to learn."""
    rng = np.random.default_rng(3)
    topic = rng.integers(NUM_LABELS, size=NUM_DOCUMENTS)
    counts = rng.poisson(0.15, size=(NUM_DOCUMENTS, NUM_FEATURES)).astype(np.float32)
    for words in range(10):
        counts[np.arange(NUM_DOCUMENTS), topic * 10 + words] += rng.poisson(0.8, NUM_DOCUMENTS)
    counts[0] = 0  # a document without a known word
    truth = np.eye(NUM_LABELS, dtype=np.float32)[topic]
    return csr_array(normalize(csr_array(counts))), csr_array(truth)


FEATURES, TRUTH = random_documents()


def random_problem(*, seed: int = 0, **config: object) -> SvmProblem:
    chosen = SparseConfig.model_validate({"prune_below": 0, "exact_documents": 0} | config)
    return SvmProblem(FEATURES, csr_array(TRUTH.T), chosen, seed=seed)


def exact_problem(**config: object) -> SvmProblem:
    return random_problem(exact_documents=NUM_DOCUMENTS, **config)


def classifiers(problem: SvmProblem, labels: np.ndarray = EVERY_LABEL) -> np.ndarray:
    """[w, b] of each label."""
    fitted = problem.fit(labels)
    starts = np.concatenate([[0], np.cumsum(fitted.sizes)])
    shape = (len(labels), NUM_FEATURES)
    weights = csr_array((fitted.weights, fitted.features, starts), shape=shape)
    return np.hstack([weights.toarray(), fitted.bias[:, None]]).astype(np.float64)


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    one, two = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (first, second))
    return (one * two).sum(axis=1)


def objective(classifier: np.ndarray, label: int, loss: str, cost: float) -> float:
    """What a linear SVM minimises, its bias being a weight like others."""
    target = 2 * TRUTH[:, [label]].toarray()[:, 0] - 1
    margin = 1 - target * (FEATURES @ classifier[:-1] + classifier[-1])
    errors = np.maximum(margin, 0) ** (2 if loss == "squared_hinge" else 1)
    return float(classifier @ classifier / 2 + cost * errors.sum())


@pytest.mark.parametrize(("loss", "excess"), [("squared_hinge", 0.01), ("hinge", 0.1)])
@pytest.mark.parametrize("cost", [0.3, 4.0])
def test_the_exact_classifier_is_close_to_the_optimum(loss, excess, cost):
    found = classifiers(exact_problem(loss=loss, cost=cost))
    for label in EVERY_LABEL:
        svm = LinearSVC(loss=loss, C=cost, tol=1e-8, max_iter=100_000, random_state=0)
        svm.fit(FEATURES, TRUTH[:, [label]].toarray()[:, 0])
        optimum = np.append(svm.coef_[0], svm.intercept_[0])
        least = objective(optimum, label, loss, cost)
        assert least <= objective(found[label], label, loss, cost) * (1 + 1e-9)
        assert objective(found[label], label, loss, cost) <= (1 + excess) * least


def test_a_working_set_of_all_documents_gives_the_exact_classifier():
    everything = random_problem(hard_negatives=NUM_DOCUMENTS, sampled_negatives=NUM_DOCUMENTS)
    assert cosines(classifiers(everything), classifiers(exact_problem())).min() > 0.999


def test_hard_negatives_and_rounds_come_closer_to_the_exact_classifier():
    exact = classifiers(exact_problem())
    options = {"hard_negatives_per_positive": 0, "sampled_negatives": 40}
    means = [
        cosines(classifiers(random_problem(**options, **more)), exact).mean()
        for more in ({"hard_negatives": 0}, {"hard_negatives": 30, "rounds": 1}, {"rounds": 2})
    ]
    assert means == sorted(means)
    assert means[-1] > 0.97


def test_labels_fitted_alone_are_to_the_bit_those_fitted_together():
    problem = random_problem(hard_negatives=20, sampled_negatives=50)
    together = problem.fit(EVERY_LABEL)
    alone = joined([problem.fit(np.array([label])) for label in EVERY_LABEL])
    for name in ("sizes", "features", "weights", "bias"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(together, name))


@pytest.mark.parametrize("exact_documents", [0, NUM_DOCUMENTS])
def test_a_label_of_every_document_has_no_weights(exact_documents):
    everyone = csr_array(np.ones((1, NUM_DOCUMENTS), dtype=np.float32))
    config = SparseConfig(exact_documents=exact_documents)
    fitted = SvmProblem(FEATURES, everyone, config, seed=0).fit(np.array([0]))
    assert fitted.sizes.tolist() == [0]
    assert fitted.bias.tolist() == [1]


@pytest.mark.parametrize("exact_documents", [0, NUM_DOCUMENTS])
@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_a_label_has_the_cost_of_its_band_to_the_bit(exact_documents, loss):
    num_own = [1, 9, 10, 11, 30]
    own = TRUTH.T.toarray()[: len(num_own)]
    own[own.cumsum(axis=1) > np.array(num_own)[:, None]] = 0
    assert own.sum(axis=1).tolist() == num_own

    def fitted(**costs: float) -> np.ndarray:
        settings = {"prune_below": 0, "exact_documents": exact_documents, "hard_negatives": 20}
        config = SparseConfig.model_validate(settings | {"loss": loss} | costs)
        problem = SvmProblem(FEATURES, csr_array(own), config, seed=0)
        return classifiers(problem, np.arange(len(num_own)))

    low, high, both = (fitted(cost=c, rare_cost=r) for c, r in ((0.05, 0.05), (3, 3), (0.05, 3)))
    assert (low != high).any(axis=1).all()
    np.testing.assert_array_equal(both[:2], high[:2])
    np.testing.assert_array_equal(both[2:], low[2:])


# Every document has a column of its own, which no search reads, and errors cost next to nothing:
# so the columns with a weight tell which documents a label was trained on.


NUM_ROWS, NUM_COLUMNS = 60, 25


def random_features(seed: int, weights: np.ndarray) -> csr_array:
    """Random documents; the first has these weights, so it is what a search for it looks for."""
    rng = np.random.default_rng(seed)
    shape = (NUM_ROWS, NUM_COLUMNS)
    features = sparse.random_array(shape, density=0.2, rng=rng, dtype=np.float32).toarray()
    features[0] = weights
    return csr_array(features)


def rows_of(matrix: csr_array) -> Rows:
    squares = (matrix**2).sum(axis=1).astype(np.float32)
    indptr = matrix.indptr.astype(np.int64)
    return Rows(indptr, matrix.indices, matrix.data, squares, matrix.shape[1])


def trained_on(
    features: csr_array, positives: np.ndarray, num_labels: int = 1, **plan: float
) -> list[np.ndarray]:
    """Return the documents that each of some equal labels is trained on beside its own."""
    own_columns = sparse.eye_array(NUM_ROWS, dtype=np.float32)
    by_document = csr_array(sparse.hstack([features, own_columns]), dtype=np.float32)
    by_feature = csr_array(sparse.vstack([features.T, csr_array((NUM_ROWS,) * 2)]))
    by_label = np.zeros((num_labels, NUM_ROWS), dtype=np.float32)
    by_label[:, positives] = 1
    matrices = [by_document, csr_array(by_feature, dtype=np.float32), csr_array(by_label)]
    names = [x for x in Plan._fields if x.startswith(("hard", "sampled", "postings"))]
    costs = {"cost": 1e-6, "rare_cost": 1e-6}
    given = costs | {"is_hinge": True, "prune_below": 0, "rounds": 1, "seed": 3}
    starts, columns, _, _ = fit_chunk(
        *map(rows_of, matrices),
        np.arange(num_labels),
        Plan(**dict.fromkeys(names, 0) | given | plan),
    )
    return [
        np.setdiff1d(some[some >= NUM_COLUMNS] - NUM_COLUMNS, positives)
        for some in np.split(columns, starts[1:-1])
    ]


@given(seed=st.integers(0, 10_000), wanted=st.integers(0, NUM_ROWS))
def test_search_finds_the_documents_of_highest_score(seed, wanted):
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=NUM_COLUMNS).astype(np.float32)
    weights[::5] *= 0.001  # too small to play a part
    features = random_features(seed, weights)
    [found] = trained_on(features, np.array([0]), hard_negatives=wanted, postings=10**9)

    kept = np.where(np.abs(weights) >= 0.02, weights, 0)
    scores = features @ kept
    scores[0] = -np.inf
    candidates = np.flatnonzero(scores > 0)
    assert len(found) == min(wanted, len(candidates))
    assert set(found) <= set(candidates)
    left_out = np.setdiff1d(candidates, found)
    if len(found) and len(left_out):
        assert scores[found].min() >= scores[left_out].max() - 1e-5


def test_search_reads_the_heaviest_features_until_its_budget_is_spent():
    features = random_features(0, np.linspace(1, 2, NUM_COLUMNS))
    sizes = np.diff(csr_array(features.T).indptr)
    budget = int(sizes[-1] + sizes[-2])
    [found] = trained_on(features, np.array([0]), hard_negatives=100, postings=budget)
    heaviest = features[:, [NUM_COLUMNS - 1, NUM_COLUMNS - 2]]
    assert set(found) == set(np.flatnonzero(heaviest.sum(axis=1))) - {0}


def test_of_equal_weights_the_smaller_feature_is_read_first():
    features = random_features(0, np.ones(NUM_COLUMNS))
    budget = int(np.diff(csr_array(features.T).indptr)[0])
    [found] = trained_on(features, np.array([0]), hard_negatives=100, postings=budget)
    assert set(found) == set(features[:, [0]].nonzero()[0]) - {0}


@pytest.mark.parametrize("wanted", [5, 40])  # few of the rest are drawn, many are dealt
def test_samples_are_uniform_over_the_documents_not_in_the_set(wanted):
    features = random_features(0, np.ones(NUM_COLUMNS))
    positives = np.arange(0, NUM_ROWS, 6)
    times = np.zeros(NUM_ROWS)
    for drawn in trained_on(features, positives, num_labels=2000, sampled_negatives=wanted):
        assert len(drawn) == wanted
        times[drawn] += 1
    rest = np.setdiff1d(np.arange(NUM_ROWS), positives)
    # Without replacement the counts vary less than a multinomial's: the test is on the safe side.
    assert stats.chisquare(times[rest]).pvalue > 0.01


RARE = 13
USELESS = 1e-6
"""A cost with which all weights are pruned."""


def documents(seed: int) -> tuple[list[str], csr_array]:
    """Documents of one or two labels, each with a word of its own among others; one is rare."""
    rng = np.random.default_rng(seed)
    truth = np.zeros((NUM_DOCUMENTS, RARE + 1), dtype=np.float32)
    for _ in range(2):
        truth[np.arange(NUM_DOCUMENTS), rng.integers(0, RARE, NUM_DOCUMENTS)] = 1
    truth[:5, RARE] = 1
    others = rng.integers(0, 30, (NUM_DOCUMENTS, 6))
    texts = [
        " ".join([*(f"label{x}" for x in np.flatnonzero(own)), *(f"word{x}" for x in some)])
        for own, some in zip(truth, others, strict=True)
    ]
    return texts, csr_array(truth)


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    """Returns a function that chooses a cost, and the model with each of some costs."""
    texts, truth = documents(0)
    tfidf, features = fit_tfidf(texts, SparseConfig())
    dev_texts, dev_truth = documents(1)
    dev = DevDocuments(tfidf.transform(dev_texts), dev_truth)

    def fit(config):
        folder = tmp_path_factory.mktemp("fit")
        return fit_sparse_model(tfidf, features, truth, config, seed=1, folder=folder)

    def choose(num_dev=NUM_DOCUMENTS, folder=None, **given):
        config = SparseConfig.model_validate(given)
        some = DevDocuments(dev.features[:num_dev], dev.truth[:num_dev]) if num_dev else None
        folder = folder or tmp_path_factory.mktemp("chosen")
        return with_cost_chosen(fit(config), features, truth, some, config, seed=1, folder=folder)

    return fit, choose


def same(first, second) -> bool:
    return (first.weights != second.weights).nnz == 0 and np.array_equal(first.bias, second.bias)


def test_a_cost_that_is_given_stays_and_nothing_is_trained(problem, tmp_path):
    fit, choose = problem
    model, config = choose(folder=tmp_path, cost=3.0)
    assert config.cost == 3.0 and same(model, fit(config)) and not list(tmp_path.iterdir())


def test_the_low_cost_is_taken_where_it_ranks_better(problem, monkeypatch, tmp_path):
    fit, choose = problem
    monkeypatch.setattr(cost, "LOW_COST", 4.0)
    monkeypatch.setattr(cost, "DEFAULT_COST", USELESS)
    monkeypatch.setattr("longtail.training.sparse.svm.DEFAULT_COST", USELESS)
    found = [choose(folder=tmp_path) for _ in range(2)]  # the second reads what the first kept
    for model, config in found:
        assert config == SparseConfig(cost=4.0)
        assert same(model, fit(config)) and np.array_equal(model.labels, np.arange(RARE + 1))
    for num_dev in (0, 99):  # none, and too few
        model, config = choose(num_dev)
        assert config == SparseConfig(cost=USELESS) and same(model, fit(config))


def test_the_default_stays_where_the_low_cost_is_worse(problem, monkeypatch):
    fit, choose = problem
    monkeypatch.setattr(cost, "LOW_COST", USELESS)
    model, config = choose()
    assert config == SparseConfig(cost=1.0) and same(model, fit(config))


@pytest.mark.parametrize(("gains", "chosen"), [((0.5, -0.45), 1.0), ((0.5, -0.1), 0.5)])
def test_a_gain_must_be_beyond_chance(problem, monkeypatch, gains, chosen):
    _, choose = problem
    values = iter([np.tile(gains, 20), np.zeros(40)])  # with the low cost first
    monkeypatch.setattr(cost, "_ndcg", lambda model, dev: next(values))
    assert choose()[1].cost == chosen


def test_rows_of_rare_labels_stay_the_same_to_the_bit(problem):
    fit, _ = problem
    models = [fit(SparseConfig(cost=x)) for x in (0.5, 1.0)]
    for first, second in pairwise(models):
        changed = [(first.weights[[x]] != second.weights[[x]]).nnz > 0 for x in range(RARE + 1)]
        assert changed == [x != RARE for x in range(RARE + 1)]
