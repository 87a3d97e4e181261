"""Classifiers on working sets, against those trained on all documents."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.preprocessing import normalize

from training.config import SparseConfig
from training.svm import FittedLabel, SvmProblem, fit_labels

NUM_DOCUMENTS, NUM_FEATURES, NUM_LABELS = 300, 80, 6


def random_problem(*, is_exact: bool = False, **config: float) -> SvmProblem:
    """Documents whose label decides which words are frequent: something to learn."""
    rng = np.random.default_rng(3)
    topic = rng.integers(NUM_LABELS, size=NUM_DOCUMENTS)
    counts = rng.poisson(0.15, size=(NUM_DOCUMENTS, NUM_FEATURES)).astype(float)
    for words in range(10):
        counts[np.arange(NUM_DOCUMENTS), topic * 10 + words] += rng.poisson(0.8, NUM_DOCUMENTS)
    features = csr_array(normalize(csr_array(counts)))
    truth = csr_array(np.eye(NUM_LABELS, dtype=np.float32)[topic])
    return SvmProblem(
        features=features,
        by_feature=None if is_exact else csr_array(features.T, dtype=np.float32),
        by_label=csr_array(truth.T),
        config=SparseConfig(prune_below=0, **config),
        seed=0,
    )


def fit_all(problem: SvmProblem, rounds: int = 1) -> list[FittedLabel]:
    fitted = None
    for _ in range(rounds):
        fitted = fit_labels(problem, np.arange(NUM_LABELS), fitted)
    return fitted


def cosines(first: list[FittedLabel], second: list[FittedLabel]) -> np.ndarray:
    vectors = [
        np.vstack([np.append(x.weights.toarray()[0], x.bias) for x in fitted])
        for fitted in (first, second)
    ]
    one, two = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in vectors)
    return (one * two).sum(axis=1)


def test_a_working_set_of_all_documents_gives_the_exact_classifier():
    exact = fit_all(random_problem(is_exact=True))
    everything = random_problem(hard_negatives=NUM_DOCUMENTS, sampled_negatives=NUM_DOCUMENTS)
    assert cosines(fit_all(everything), exact).min() > 0.999


def test_a_sample_alone_stands_for_all_documents():
    exact = fit_all(random_problem(is_exact=True))
    options = {"hard_negatives": 0, "hard_negatives_per_positive": 0, "sampled_negatives": 150}
    assert cosines(fit_all(random_problem(**options)), exact).min() > 0.9


def test_hard_negatives_and_rounds_come_closer_to_the_exact_classifier():
    exact = fit_all(random_problem(is_exact=True))
    options = {"hard_negatives_per_positive": 0, "sampled_negatives": 40}
    without = cosines(fit_all(random_problem(hard_negatives=0, **options)), exact)
    within = cosines(fit_all(random_problem(hard_negatives=60, **options), rounds=2), exact)
    assert within.mean() > without.mean()
    assert within.min() > 0.95


def test_the_first_hard_negatives_are_those_nearest_to_the_centroid():
    problem = random_problem(hard_negatives=5, hard_negatives_per_positive=0)
    for label, fitted in enumerate(fit_all(problem)):
        positives = problem.positives(label)
        centroid = problem.features[positives].toarray().mean(axis=0)
        centroid[centroid < 0.02] = 0
        scores = problem.features @ centroid
        scores[positives] = -np.inf
        assert set(fitted.hard) == set(np.argsort(-scores)[:5])


def test_hard_negatives_of_a_round_are_kept_in_the_next():
    problem = random_problem(hard_negatives=5, hard_negatives_per_positive=0)
    first = fit_all(problem)
    second = fit_labels(problem, np.arange(NUM_LABELS), first)
    assert all(set(a.hard) <= set(b.hard) for a, b in zip(first, second, strict=True))


def test_hard_negatives_never_carry_the_label():
    problem = random_problem(hard_negatives=50)
    for label, fitted in enumerate(fit_all(problem, rounds=2)):
        assert not set(fitted.hard) & set(problem.positives(label))


def test_labels_fitted_alone_are_to_the_bit_those_fitted_together():
    problem = random_problem(hard_negatives=20, sampled_negatives=50)
    together = fit_all(problem)
    alone = [fit_labels(problem, np.array([label]), None)[0] for label in range(NUM_LABELS)]
    assert all((a.weights != b.weights).nnz == 0 for a, b in zip(alone, together, strict=True))
    assert [x.bias for x in alone] == [x.bias for x in together]


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_label_of_every_document_has_no_weights(is_exact):
    problem = random_problem(is_exact=is_exact)
    everyone = csr_array(np.ones((1, NUM_DOCUMENTS), dtype=np.float32))
    problem = SvmProblem(problem.features, problem.by_feature, everyone, problem.config, 0)
    (fitted,) = fit_labels(problem, np.array([0]), None)
    assert fitted.weights.nnz == 0
    assert fitted.bias == 1
