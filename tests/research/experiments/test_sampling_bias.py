"""The experiment on sampling bias: its settings, its figures and its report."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.models.metrics import join_truth
from longtail.training.learning.objectives import PairObjective, SamplerInputs, make_objective
from longtail.training.learning.sampling import label_counts
from research.experiments.data import ExperimentData, Part
from research.experiments.long_tail_profiles import (
    ProfileShape,
    balanced_errors,
    make_profile,
    profile_sizes,
)
from research.experiments.sampling_bias import (
    SETTINGS,
    SamplingBiasPlan,
    learning_config,
    pair_recall_at,
    run_sampling_bias,
)
from research.experiments.trials import Trial

PLAN = SamplingBiasPlan(
    epochs=2, profile_epochs=1, num_negatives=8, num_profile_negatives=4, width=16
)
L, N = 12, 96


@pytest.fixture(scope="module")
def data():
    """Each document carries a common and a rarer label, told by a word of each."""
    rng = np.random.default_rng(0)

    def part(size: int) -> Part:
        rare = np.minimum(rng.geometric(0.25, size), L - 1)
        rare[: L - 1] = np.arange(1, L)
        words = np.zeros((size, 2 * L), dtype=np.float32)
        words[np.arange(size), rare] = 1
        words[np.arange(size), L + rng.integers(L, size=size)] = 0.5
        truth = np.zeros((size, L), dtype=np.float32)
        truth[:, 0] = truth[np.arange(size), rare] = 1
        return Part(csr_array(words), csr_array(truth))

    return ExperimentData(part(N), part(N // 4))


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_setting_can_be_made_and_trained(setting, data):
    objective = make_objective(learning_config(setting, 8), SamplerInputs(data.counts, "cpu"))
    assert isinstance(objective, PairObjective)
    values = run_sampling_bias(data, PLAN, Trial("retrieval", setting, 0), 0.1, "cpu")
    assert values["R@1 Full"] > 1 / L  # what a random label gets
    assert all(0 <= value <= 1 for value in values.values())


def test_figures_of_a_profile_are_balanced_errors(data):
    values = run_sampling_bias(data, PLAN, Trial("STEP", "full_softmax", 0), 0.1, "cpu")
    assert "error Full" in values and "error Tail" in values
    assert set(values) <= {f"error {name}" for name in ("Head", "Torso", "Tail", "Full")}


def test_recall_of_pairs_by_hand():
    truth = csr_array(np.array([[1, 1, 0], [0, 0, 1], [0, 1, 0]], dtype=np.float32))
    judged = join_truth(np.array([[0, 2], [2, 0], [0, 2]]), truth)
    assert pair_recall_at(judged, 1) == 2 / 4
    assert pair_recall_at(judged.restricted_to(np.array([False, True, False])), 2) == 0
    nothing = judged.restricted_to(np.zeros(3, dtype=bool))
    assert pair_recall_at(nothing, 1) == 0


def part_of(labels: list[list[int]], num_labels: int) -> Part:
    """Documents of which feature i is document i, so that it can be told which stayed."""
    truth = np.zeros((len(labels), num_labels), dtype=np.float32)
    for row, carried in enumerate(labels):
        truth[row, carried] = 1
    return Part(csr_array(np.eye(len(labels), dtype=np.float32)), csr_array(truth))


@pytest.fixture
def profiles():
    """Label 0 on all documents, and 1, 2, 3 on 40, 30 and 20 of them; 4 on one, 5 not measured."""
    labels = [[0, 1]] * 40 + [[0, 2]] * 30 + [[3, 0]] * 20 + [[0, 4, 5]] + [[0, 5]] * 25
    measured = [[0, 1], [2, 0], [0, 3], [0, 3], [0, 4], []]
    return ExperimentData(part_of(labels, 6), part_of(measured, 6))


def shape(kind: str, num_classes: int = 3, imbalance: float = 10.0) -> ProfileShape:
    return ProfileShape(kind, num_classes, imbalance)


@given(st.sampled_from(["EXP", "STEP"]), st.integers(100, 900), st.integers(2, 50))
def test_sizes_fall_from_the_most_to_its_hundredth(kind, most, num_classes):
    sizes = profile_sizes(ProfileShape(kind), most, num_classes)
    assert sizes[0] == most and sizes[-1] == round(most / 100)
    assert (np.diff(sizes) <= 0).all()


@pytest.mark.parametrize("kind", ["EXP", "STEP"])
def test_a_document_has_its_rarest_common_label_and_classes_have_the_sizes(profiles, kind):
    problem = make_profile(profiles, shape(kind), np.random.default_rng(0))
    wanted = profile_sizes(shape(kind), 20, 3)
    assert sorted(problem.counts.tolist(), reverse=True) == wanted.tolist()
    assert (np.diff(problem.train.truth.indptr) == 1).all()
    # Classes by their documents: those of labels 1, 2, 3 are rows 0-39, 40-69, 70-89.
    first_rows = np.array([0, 40, 70, 90])
    for of_class in problem.train.truth.toarray().T:
        rows = problem.train.features[of_class > 0].indices
        assert len(set(np.searchsorted(first_rows, rows, side="right"))) == 1
    measured = problem.measured
    assert measured.features.indices.tolist() == [0, 1, 2, 3]
    assert sorted(label_counts(measured.truth).tolist()) == [1, 1, 2]
    assert measured.truth.indices[2] == measured.truth.indices[3]


def test_balanced_errors_by_hand():
    counts = [100, 99, 20, 19]
    train = part_of([[label] for label, count in enumerate(counts) for _ in range(count)], 4)
    measured = part_of([[0], [0], [1], [1], [2], [3], [3], [3]], 4)
    predicted = np.array([0, 1, 1, 1, 0, 3, 3, 0])
    errors = balanced_errors(predicted, ExperimentData(train, measured))
    assert errors == pytest.approx(
        {"Head": 1 / 2, "Torso": (0 + 1) / 2, "Tail": 1 / 3, "Full": (1 / 2 + 1 + 1 / 3) / 4}
    )
