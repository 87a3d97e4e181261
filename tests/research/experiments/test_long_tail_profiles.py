"""Multi-class problems with a long tail of known shape."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from longtail.training.learning.sampling import label_counts
from research.experiments.data import ExperimentData, Part
from research.experiments.long_tail_profiles import (
    ProfileShape,
    balanced_errors,
    make_profile,
    profile_sizes,
)


def part_of(labels: list[list[int]], num_labels: int) -> Part:
    """Documents of which feature i is document i, so that it can be told which stayed."""
    truth = np.zeros((len(labels), num_labels), dtype=np.float32)
    for row, carried in enumerate(labels):
        truth[row, carried] = 1
    return Part(csr_array(np.eye(len(labels), dtype=np.float32)), csr_array(truth))


@pytest.fixture
def data():
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
def test_a_document_has_its_rarest_common_label_and_classes_have_the_sizes(data, kind):
    problem = make_profile(data, shape(kind), np.random.default_rng(0))
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
