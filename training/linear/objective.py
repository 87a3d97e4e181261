"""The objectives of linear scorers: any negatives and loss over pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array
from torch import Tensor

from longtail.models.label_tree.tree import LabelTree
from longtail.models.scorers.linear import LinearModel, LinearScorer
from longtail.training.configuration.learning import LearningConfig
from longtail.training.learning.document_distributions import (
    UNIFORM_SHARE,
    PartlyUniform,
    TreeNegatives,
    TreeSampler,
)
from longtail.training.learning.objectives import PairObjective, SamplerInputs, make_objective
from longtail.training.learning.sampling import Negatives, Pairs, label_counts


def make_pair_objective(
    config: LearningConfig,
    vectors: Float32[np.ndarray, "document dim"],
    truth: Float32[csr_array, "document label"],
    *,
    tree: LabelTree | None = None,
    device: str = "cpu",
) -> PairObjective:
    """Make the objective of any negatives and loss over pairs for these training documents."""
    tree = None if tree is None else tree.to(device)
    objective = make_objective(config, SamplerInputs(label_counts(truth), device, tree=tree))
    negatives = config.negatives
    if tree is None or negatives is None or negatives.num_negatives is None:
        return objective
    # Nothing is left of a good tree's draws where all labels of a document are excluded.
    sampler = (
        tree if negatives.exclude == "none" else PartlyUniform(tree, UNIFORM_SHARE, truth.shape[1])
    )
    features = project(tree, vectors, device)
    return replace(
        objective, distribution=ProjectedTree(sampler, features, negatives.num_negatives)
    )


def project(
    tree: LabelTree, vectors: Float32[np.ndarray, "document dim"], device: str
) -> Float32[Tensor, "document k"]:
    """Return what a tree reads of vectors."""
    rows = np.array_split(np.arange(len(vectors)), len(vectors) // 2**14 + 1)
    return torch.cat([tree.project(torch.from_numpy(vectors[part]).to(device)) for part in rows])


@dataclass(frozen=True, slots=True)
class ProjectedTree:
    """Draws of a label tree for documents that were projected beforehand.

    As `TreeNegatives`, but faster: the projection, which would cost more than all the rest of a
    step, is done once for each document, and where nothing is excluded log p_n of the draws is
    known from drawing them.

    Attributes:
        tree: Draws.
        features: Features of every document, from `tree.project`.
        num_draws: m, a pair.
    """

    tree: TreeSampler
    features: Float32[Tensor, "document k"]
    num_draws: int

    def draw(self, pairs: Pairs, generator: torch.Generator) -> Negatives:
        """Draw m labels for each pair, with replacement."""
        features = self.features.index_select(0, pairs.documents)  # (batch, k)
        if pairs.excluded.shape[1] or not isinstance(self.tree, LabelTree):
            projected = replace(pairs, vectors=features)
            return TreeNegatives(_Unprojecting(self.tree), self.num_draws).draw(
                projected, generator
            )
        # Nothing excluded: the walk down the tree that draws a label adds up its log p_n as well.
        labels, log_q = self.tree.sample_with_log_prob(features, self.num_draws, generator)
        return Negatives(
            positives=pairs.labels,
            labels=labels,
            is_drawn=torch.ones_like(labels, dtype=torch.bool),
            log_q=log_q,
            log_q_positive=self.tree.quick_log_prob(features, pairs.labels).unsqueeze(1),
        )


@dataclass(frozen=True, slots=True)
class _Unprojecting:
    """A tree that takes features where vectors are wanted."""

    tree: TreeSampler

    def project(self, vectors: Float32[Tensor, "batch k"]) -> Float32[Tensor, "batch k"]:
        return vectors

    def sample(
        self, features: Float32[Tensor, "batch k"], num: int, generator: torch.Generator
    ) -> Int64[Tensor, "batch num"]:
        return self.tree.sample(features, num, generator)

    def log_prob(
        self, features: Float32[Tensor, "batch k"], labels: Int64[Tensor, "batch m"]
    ) -> Float32[Tensor, "batch m"]:
        return self.tree.log_prob(features, labels)


_RIDGE = 10.0
"""lambda, for vectors of length 1; 1 to 100 rank the dev splits tried alike."""


def fit_ridge(
    vectors: Float32[np.ndarray, "document dim"], truth: Float32[csr_array, "document label"]
) -> LinearScorer:
    """Return W and b that minimise ||Y - X W^T - 1 b^T||^2 + lambda ||W||^2.

    With centred vectors, W^T = (X^T X + lambda I)^-1 X^T Y, and b is the share of the documents
    that carry each label less its score of the mean vector.

    Args:
        vectors: The documents' vectors, all of one length, which lambda is relative to.
        truth: Ones where a document carries a label.
    """
    labels = np.unique(truth.indices).astype(np.int64)
    mean = vectors.mean(axis=0, dtype=np.float64)
    scale = float(np.mean(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)))
    counts = np.bincount(truth.indices, minlength=truth.shape[1])[labels].astype(np.float64)
    gram = (vectors.T @ vectors).astype(np.float64) - len(vectors) * np.outer(mean, mean)
    sums = (truth.T @ vectors)[labels].astype(np.float64) - counts[:, None] * mean
    gram[np.diag_indices_from(gram)] += _RIDGE * (scale or 1.0)
    weight = np.linalg.solve(gram, sums.T).T
    bias = counts / len(vectors) - weight @ mean
    model = LinearModel(weight.astype(np.float32), bias.astype(np.float32), labels)
    return LinearScorer(model, "none")
