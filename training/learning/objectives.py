"""What a step minimises, put together from q, w and a loss, for anything that scores labels.

q is the configuration's `distribution`, w its `weighting`, m its `num_negatives`.
The dual encoder, the dense classifier and the linear scorers differ in their `Scorer` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from longtail.models.errors import ConfigError
from longtail.training.configuration.learning import (
    LearningConfig,
    Loss,
    LossOverPairs,
    LossOverSubset,
)
from longtail.training.configuration.negatives import (
    AllLabelsConfig,
    FrequencyConfig,
    HardConfig,
    NegativesConfig,
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
    HardNegatives,
    SoftmaxNegatives,
    TreeNegatives,
    TreeSampler,
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
    unweighted,
)
from longtail.training.losses import PairLoss, SubsetLoss

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


@dataclass(frozen=True, slots=True)
class PairObjective:
    """A loss of pairs over weighted negatives (Rawat et al. 2021, Eq. 7 and 8).

    The draws are apart from the cost, for scorers that want to know them first.
    """

    distribution: Distribution
    weight: Weight
    loss: PairLoss

    def __call__(
        self, pairs: Pairs, score: Scorer, generator: torch.Generator
    ) -> Float[Tensor, ""]:
        """Draw negatives, score them and the positives, and return the mean loss."""
        return self.cost(pairs, self.distribution.draw(pairs, generator), score)

    def cost(self, pairs: Pairs, negatives: Negatives, score: Scorer) -> Float[Tensor, ""]:
        """Score the positives and negatives that were drawn, and return the mean loss."""
        positive = score(pairs.labels.unsqueeze(1)).squeeze(1)
        return self.loss(positive, score(negatives.labels), self.weight(negatives))


@dataclass(frozen=True, slots=True)
class SamplerInputs:
    """What distributions and weights are made of; None where a run has no such thing.

    Attributes:
        counts: Training documents of each label.
        device: Where to draw.
        hard: Hard negatives of every training document, padded with `NO_LABEL`.
        score_all: Current scores of all labels for each pair.
        tree: The label tree.
    """

    counts: Int64[np.ndarray, label]
    device: str
    hard: Int64[Tensor, "document hard"] | None = None
    score_all: Callable[[Pairs], Float[Tensor, "batch label"]] | None = None
    tree: TreeSampler | None = None

    def log_prior(self) -> Float32[Tensor, label]:
        """Return log pi of every label."""
        log_pi = log_frequencies(self.counts).astype(np.float32)
        return torch.from_numpy(log_pi).to(self.device)


def make_objective(config: LearningConfig, inputs: SamplerInputs) -> PairObjective:
    """Make the objective of a loss over pairs.

    Args:
        config: With a loss over pairs.
        inputs: What its parts need.
    """
    num_labels, num_hard = len(inputs.counts), 0 if inputs.hard is None else inputs.hard.shape[1]
    config.check(num_labels, num_hard)
    negatives, loss = config.negatives, config.loss
    if negatives is None or not isinstance(loss, LossOverPairs):
        raise ConfigError(
            f"loss {loss.kind!r} is taken over label subsets; make it by make_subset_loss"
        )
    num_drawn = negatives.num_negatives or num_labels - 1
    return PairObjective(
        make_distribution(negatives, inputs),
        make_weight(negatives.weighting, inputs),
        loss.formula(num_labels, num_drawn),
    )


def make_subset_loss(loss: Loss) -> SubsetLoss:
    """Make a loss over the label subset of a batch."""
    if not isinstance(loss, LossOverSubset):
        raise ConfigError(f"loss {loss.kind!r} is taken over pairs; make it by make_objective")
    return loss.formula()


def make_distribution(config: NegativesConfig, inputs: SamplerInputs) -> Distribution:
    """Make q."""
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


def make_weight(name: WeightName | None, inputs: SamplerInputs) -> Weight:
    """Make w; importance is the margin 1, "tail" the logit adjustment, and None weighs nothing."""
    if name is None:
        return unweighted
    if name in _FREE_WEIGHTS:
        return _FREE_WEIGHTS[name]
    return TargetMargin(inputs.log_prior(), _MARGINS[name])


def _needed(part: _Part | None, name: str) -> _Part:
    if part is None:
        raise ConfigError(
            f"negatives: this distribution is made from {name!r}, which the run lacks; give it to "
            "SamplerInputs, or take another"
        )
    return part
