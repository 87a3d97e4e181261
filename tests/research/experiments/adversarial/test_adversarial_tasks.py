"""What the learning curves are drawn of: corpora as vectors, and a problem whose p_D is known."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import logsumexp

from research.experiments.adversarial.tasks import CORPUS_TASKS, MixtureProblem, corpus_tasks
from research.experiments.data import ExperimentData, Part

TRUTH = np.array(
    [[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 0, 1], [1, 0, 0, 0, 0], [1, 0, 0, 1, 0]],
    dtype=np.float32,
)


def data(measured: np.ndarray = TRUTH) -> ExperimentData:
    rng = np.random.default_rng(0)
    features = [rng.random((len(x), 7), dtype=np.float32) for x in (TRUTH, measured)]
    return ExperimentData(
        Part(csr_array(features[0]), csr_array(TRUTH)),
        Part(csr_array(features[1]), csr_array(measured)),
    )


def test_the_first_label_alone_is_kept_and_labels_without_pairs_go():
    tasks = list(corpus_tasks(data(), CORPUS_TASKS, dim=3, num_judged=2))
    assert [task.name for task in tasks] == ["first_label", "all_labels"]
    wanted = np.zeros((5, 3), dtype=np.float32)
    wanted[np.arange(5), [0, 1, 2, 0, 0]] = 1
    np.testing.assert_array_equal(tasks[0].truth.todense(), wanted)
    np.testing.assert_array_equal(tasks[1].truth.todense(), TRUTH)


def test_vectors_are_the_truncated_svd_at_a_mean_square_of_one():
    given = data()
    (task,) = corpus_tasks(given, ["all_labels"], dim=3, num_judged=2)
    left, singular, _ = np.linalg.svd(given.train.features.todense())
    wanted = left[:, :3] * singular[:3]
    wanted /= np.sqrt(np.mean(wanted**2))
    np.testing.assert_allclose(task.vectors @ task.vectors.T, wanted @ wanted.T, atol=1e-4)
    assert np.mean(task.vectors**2) == pytest.approx(1)


def test_documents_to_tune_on_are_none_to_measure_on_and_all_have_a_label():
    measured = np.vstack([TRUTH, 0 * TRUTH, TRUTH])
    given = data(measured)
    (task,) = corpus_tasks(given, ["all_labels"], dim=3, num_judged=4)
    both = np.vstack([task.tuning.vectors, task.measured.vectors])
    assert len(np.unique(both, axis=0)) == len(both) == 8
    for exam in (task.tuning, task.measured):
        assert np.diff(exam.truth.indptr).all()


def test_the_mixture_is_judged_by_the_densities_of_its_labels():
    problem = MixtureProblem(6, documents_a_label=50, dim=4)
    task = problem.make(2000)
    rng = np.random.default_rng([0, 6])
    priors = rng.permutation(np.arange(1, 7) ** -0.5)
    labels = rng.choice(6, 300, p=priors / priors.sum())
    assert len(np.unique(labels)) == 6
    means = problem._means(rng)
    squares = ((task.measured.vectors[:, None] - means) ** 2).sum(axis=2)
    log_joint = np.log(priors) - squares / 2
    log_probs = log_joint - logsumexp(log_joint, axis=1, keepdims=True)
    own = task.measured.truth.indices
    wanted = log_probs[np.arange(2000), own].mean()
    assert task.true.log_likelihood == pytest.approx(wanted, rel=1e-4)
    assert task.true.accuracy == (log_joint.argmax(axis=1) == own).mean()
