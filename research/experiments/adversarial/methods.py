"""The methods that Bamler & Mandt (2020, section 5) compare, for `training.linear.trainer`.

A method is what is minimised, which labels may be drawn, and the correction that goes with it. The
tree alone as a classifier is `adversarial` before its first step: all scores are then zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float32
from scipy.sparse import csr_array

from longtail.models.label_tree.tree import LabelTree
from longtail.training.configuration.learning import LearningConfig
from longtail.training.learning.distributions import AllLabels, Frequency, Uniform
from longtail.training.learning.objectives import (
    Objective,
    PairObjective,
    SamplerInputs,
    make_objective,
)
from longtail.training.learning.sampling import Exclude, importance, label_counts
from longtail.training.linear.objective import ProjectedTree, project
from longtail.training.losses import softmax_loss
from research.experiments.adversarial.corrections import Correction, PriorCorrection, TreeCorrection
from research.experiments.adversarial.losses import (
    AugmentAndReduce,
    NoiseContrast,
)

MethodName = Literal[
    "adversarial", "uniform", "frequency", "nce", "one_versus_each", "augment_and_reduce", "softmax"
]
WITH_TREE: tuple[MethodName, ...] = ("adversarial", "nce")


@dataclass(frozen=True, slots=True)
class Method:
    """A way to train linear scorers.

    Attributes:
        objective: What is minimised.
        exclude: Labels that may not be negatives of a pair, for `LinearOptions`.
        correction: What makes the scores those of a softmax (Eq. 5); None: they are already.
    """

    objective: Objective
    exclude: Exclude
    correction: Correction | None


def make_method(
    name: MethodName,
    vectors: Float32[np.ndarray, "document dim"],
    truth: Float32[csr_array, "document label"],
    *,
    num_negatives: int = 1,
    regulariser: float = 0.0,
    tree: LabelTree | None = None,
    device: str = "cpu",
) -> Method:
    """Make a method for these training documents.

    Args:
        name: `adversarial`, `uniform` and `frequency` are negative sampling (Eq. 6) from a tree,
            uniformly and by label frequencies; `nce` has the tree as its base distribution;
            `one_versus_each` (Titsias 2016), `augment_and_reduce` (Ruiz et al. 2018) and `softmax`
            leave out the positive from what they draw or sum over.
        vectors: Document vectors; what the tree was fitted to.
        truth: Labels of the documents.
        num_negatives: m, a pair; without a meaning for `softmax`, where it must be 1.
        regulariser: lambda of Eq. 6.
        tree: What negatives are drawn from.
        device: Where to train.
    """
    num_labels = truth.shape[1]
    uniform = Uniform(num_labels, num_negatives)
    match name:
        case "adversarial" | "nce":
            assert tree is not None
            tree = tree.to(device)
            drawn = ProjectedTree(tree, project(tree, vectors, device), num_negatives)
            if name == "nce":
                nce = NoiseContrast(drawn, regulariser, log_normaliser=math.log(num_labels))
                return Method(nce, "none", None)
            return Method(NoiseContrast(drawn, regulariser), "none", TreeCorrection(tree))
        case "uniform":
            return Method(NoiseContrast(uniform, regulariser), "none", None)
        case "frequency":
            prior = Frequency.of(label_counts(truth), 1.0, num_negatives, device)
            correction = PriorCorrection(prior.log_probabilities)
            return Method(NoiseContrast(prior, regulariser), "none", correction)
        case "one_versus_each":
            config = LearningConfig.model_validate(
                {
                    "negatives": {
                        "distribution": {"kind": "uniform"}, "weighting": "importance",
                        "num_negatives": num_negatives, "exclude": "positive",
                    },
                    "loss": {"kind": "one_versus_each"},
                }
            )  # fmt: skip
            inputs = SamplerInputs(label_counts(truth), device)
            return Method(make_objective(config, inputs), "positive", None)
        case "augment_and_reduce":
            return Method(AugmentAndReduce.of(uniform, truth, device), "positive", None)
        case "softmax":
            full = PairObjective(AllLabels(num_labels), importance, softmax_loss)
            return Method(full, "positive", None)
