"""Classifiers on working sets: against brute force, and against those trained on all documents."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from longtail.training.configuration.sections import SparseConfig
from longtail.training.sparse.svm import SvmProblem, joined

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
