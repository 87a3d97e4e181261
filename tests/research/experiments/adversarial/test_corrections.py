"""Linear scores and their correction, against loops."""

import math

import numpy as np
import torch

from longtail.models.label_tree.tree import LabelTree
from longtail.models.scorers.linear import LinearModel
from research.experiments.adversarial.corrections import (
    PriorCorrection,
    TreeCorrection,
    corrected_scores,
)

DIM, NUM_LABELS = 5, 4
COVERED = np.array([0, 2, 3])


def model() -> LinearModel:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((len(COVERED), DIM)).astype(np.float32)
    return LinearModel(weight, rng.standard_normal(len(COVERED)).astype(np.float32), COVERED)


def tree() -> LabelTree:
    rng = np.random.default_rng(1)
    return LabelTree.from_arrays(
        {
            "mean": rng.standard_normal(DIM).astype(np.float32),
            "components": rng.standard_normal((2, DIM)).astype(np.float32),
            "weights": rng.standard_normal((3, 2)).astype(np.float32),
            "biases": rng.standard_normal(3).astype(np.float32),
            "label_of_leaf": np.array([2, 0, 3, 1]),
        }
    )


def vectors() -> torch.Tensor:
    return torch.randn(3, DIM, generator=torch.Generator().manual_seed(2))


def test_the_tree_adds_log_p_n_of_each_document_and_label():
    correction = TreeCorrection(tree())
    found = corrected_scores(model(), vectors(), correction)
    features = tree().project(vectors())
    for row, vector in enumerate(vectors().double().numpy()):
        for column, label in enumerate(COVERED):
            log_p_n = tree().log_prob(features[row : row + 1], torch.tensor([[label]]))
            plain = vector @ model().weight[column] + model().bias[column]
            assert math.isclose(found[row, column], plain + float(log_p_n), rel_tol=1e-5)


def test_a_prior_is_added_to_every_document_and_minus_infinity_stays():
    prior = torch.tensor([0.5, 0.25, 0.25, 0.0]).log()
    plain, found = (corrected_scores(model(), vectors(), x) for x in (None, PriorCorrection(prior)))
    assert torch.allclose(found[:, :2], plain[:, :2] + prior[[0, 2]])
    assert (found[:, 2] == -math.inf).all()
