"""What a step minimises, put together from q, w and a loss, for anything that scores labels.

q is the configuration's `distribution`, w its `weighting`, m its `num_negatives`.
The dual encoder, the dense classifier and the linear scorers differ in their `Scorer` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from longtail.models.errors import ConfigError
from longtail.training.configuration.learning import (
    AllLabelsConfig,
    ClusterConfig,
    FrequencyConfig,
    HardConfig,
    LearningConfig,
    NegativesConfig,
    OrderedLossConfig,
    SoftmaxConfig,
    TreeConfig,
    UniformConfig,
    UniformSubsetConfig,
    WeightName,
    WithinBatchConfig,
)
from longtail.training.learning.distributions import (
    AllLabels,
    Frequency,
    Shared,
    Uniform,
    UniformSubset,
    WithinBatch,
    log_frequencies,
)
from longtail.training.learning.document_distributions import (
    ClusterNegatives,
    HardNegatives,
    LabelWeights,
    RefreshedClusters,
    SoftmaxNegatives,
    TreeNegatives,
    TreeSampler,
)
from longtail.training.learning.losses import (
    MARGIN_LOSSES,
    OrderedLoss,
    PairLoss,
    make_pair_loss,
    mining_weights,
)
from longtail.training.learning.sampling import (
    Distribution,
    Negatives,
    Pairs,
    TargetMargin,
    Weight,
    adaptive,
    constant,
    equalised,
    importance,
    logit_adjusted,
    relative,
)

_Part = TypeVar("_Part")
_FREE_WEIGHTS = {"constant": constant, "importance": importance, "relative": relative}
_MARGINS = {"tail": logit_adjusted, "equalised": equalised, "adaptive": adaptive}

Scorer = Callable[[Int64[Tensor, "#batch k"]], Float[Tensor, "batch k"]]
"""Scores labels for each pair's document, with a gradient; one row of labels is for all pairs."""


@runtime_checkable  # the test run checks annotations by isinstance
class Objective(Protocol):
    """The loss of a batch of pairs."""

    def __call__(
        self, pairs: Pairs, score: Scorer, generator: torch.Generator
    ) -> Float[Tensor, ""]:
        """Draw negatives, score them and the positives, and return the mean loss."""
        ...


def _drawn_cost(
    objective: SampledObjective | MiningObjective,
    pairs: Pairs,
    score: Scorer,
    generator: torch.Generator,
) -> Float[Tensor, ""]:
    """Draw negatives, score them and the positives, and return the mean loss."""
    negatives = objective.distribution.draw(pairs, generator)
    return objective.cost(pairs, negatives, score, generator)


@dataclass(frozen=True, slots=True)
class SampledObjective:
    """A pair loss over weighted negatives (Rawat et al. 2021, Eq. 7 and 8)."""

    distribution: Distribution
    weight: Weight
    loss: PairLoss
    __call__ = _drawn_cost

    def cost(
        self, pairs: Pairs, negatives: Negatives, score: Scorer, _: torch.Generator
    ) -> Float[Tensor, ""]:
        """Score the positives and negatives that were drawn, and return the mean loss."""
        positive = score(pairs.labels.unsqueeze(1)).squeeze(1)
        return self.loss(positive, score(negatives.labels), self.weight(negatives))


@dataclass(frozen=True, slots=True)
class MiningObjective:
    """Stochastic negative mining (Reddi et al. 2019, Algorithm 1).

    Attributes:
        distribution: Draws a uniform subset of the labels.
        loss: Over its negatives in order.
        rank_weights: vartheta of each rank.
    """

    distribution: Distribution
    loss: OrderedLoss
    rank_weights: Float32[Tensor, "1 rank"]
    __call__ = _drawn_cost

    def cost(
        self, pairs: Pairs, negatives: Negatives, score: Scorer, _: torch.Generator
    ) -> Float[Tensor, ""]:
        """Score the positives and negatives that were drawn, and return the mean loss."""
        positive = score(pairs.labels.unsqueeze(1)).squeeze(1)
        scores = score(negatives.labels).masked_fill(~negatives.is_drawn, -torch.inf)
        return self.loss(positive, scores, self.rank_weights)


@dataclass(frozen=True, slots=True)
class SamplerInputs:
    """What distributions and weights are made of; None where a run has no such thing.

    Attributes:
        counts: Training documents of each label.
        device: Where to draw.
        hard: Hard negatives of every training document, padded with `NO_LABEL`.
        score_all: Current scores of all labels for each pair.
        clusters: Label clusters, with the number of draws in them.
        label_weights: Current vectors and biases of all labels, to draw by clusters as they are
            now; None: as they were.
        tree: The label tree.
    """

    counts: Int64[np.ndarray, label]
    device: str
    hard: Int64[Tensor, "document hard"] | None = None
    score_all: Callable[[Pairs], Float[Tensor, "batch label"]] | None = None
    clusters: ClusterNegatives | None = None
    label_weights: LabelWeights | None = None
    tree: TreeSampler | None = None

    def log_prior(self) -> Float32[Tensor, label]:
        """Return log pi of every label."""
        log_pi = log_frequencies(self.counts).astype(np.float32)
        return torch.from_numpy(log_pi).to(self.device)


PairObjective = SampledObjective | MiningObjective
"""An objective whose draws are apart from its cost, for scorers that want to know them first."""


def make_objective(config: LearningConfig, inputs: SamplerInputs) -> PairObjective:
    """Make the objective of a loss over pairs.

    Args:
        config: With a loss over pairs.
        inputs: What its parts need.

    Raises:
        ConfigError: A part needs what the run has not, or the number of labels makes it impossible.
    """
    num_hard = 0 if inputs.hard is None else inputs.hard.shape[1]
    config.check(len(inputs.counts), num_hard)
    negatives = config.negatives
    if negatives is None:
        raise ConfigError(
            f"loss {config.loss.kind!r} is taken over label subsets; make it by make_subset_loss"
        )
    distribution = make_distribution(negatives, inputs)
    if isinstance(config.loss, OrderedLossConfig):
        return _mining_objective(config.loss, negatives.num_negatives, distribution, inputs)
    assert negatives.weighting is not None  # the configuration refuses it
    weight = make_weight(negatives.weighting, inputs)
    return SampledObjective(distribution, weight, make_pair_loss(config.loss))


def make_distribution(config: NegativesConfig, inputs: SamplerInputs) -> Distribution:
    """Make q.

    Raises:
        ConfigError: It needs what the run has not.
    """
    num_labels, num_draws = len(inputs.counts), config.num_negatives or 0
    match config.distribution:
        case WithinBatchConfig():
            return WithinBatch(inputs.log_prior())
        case AllLabelsConfig():
            return AllLabels(num_labels)
        case HardConfig(share=share):
            return HardNegatives(_needed(inputs.hard, "hard"), share, num_labels, num_draws)
        case SoftmaxConfig():
            return SoftmaxNegatives(_needed(inputs.score_all, "score_all"), num_draws)
        case ClusterConfig():
            clusters = replace(_needed(inputs.clusters, "clusters"), num_draws=num_draws)
            if inputs.label_weights is None:
                return clusters
            return RefreshedClusters(clusters, inputs.label_weights)
        case TreeConfig():
            return TreeNegatives(_needed(inputs.tree, "tree"), num_draws)
    fixed = _fixed_distribution(config.distribution, num_draws, inputs)
    return Shared(fixed) if config.shared else fixed


def _fixed_distribution(
    config: UniformConfig | UniformSubsetConfig | FrequencyConfig,
    num_draws: int,
    inputs: SamplerInputs,
) -> Uniform | UniformSubset | Frequency:
    if isinstance(config, UniformConfig):
        return Uniform(len(inputs.counts), num_draws)
    if isinstance(config, UniformSubsetConfig):
        return UniformSubset(len(inputs.counts), num_draws)
    return Frequency.of(inputs.counts, config.exponent, num_draws, inputs.device)


def make_weight(name: WeightName, inputs: SamplerInputs) -> Weight:
    """Make w; importance is the margin 1, "tail" the logit adjustment."""
    if name in _FREE_WEIGHTS:
        return _FREE_WEIGHTS[name]
    return TargetMargin(inputs.log_prior(), _MARGINS[name])


def _mining_objective(
    config: OrderedLossConfig,
    num_negatives: int | None,
    distribution: Distribution,
    inputs: SamplerInputs,
) -> MiningObjective:
    num_labels = len(inputs.counts)
    num_sampled = num_labels - 1 if num_negatives is None else num_negatives
    given = config.rank_weights
    if isinstance(given, int):
        weights = mining_weights(given, num_labels=num_labels, num_sampled=num_sampled)
    else:
        weights = torch.tensor([given])
    loss = OrderedLoss(MARGIN_LOSSES[config.margin_loss], config.form)
    return MiningObjective(distribution, loss, weights.to(inputs.device))


def _needed(part: _Part | None, name: str) -> _Part:
    if part is None:
        raise ConfigError(
            f"negatives: this distribution is made from {name!r}, which the run lacks; give it to "
            "SamplerInputs, or take another"
        )
    return part
