"""The configuration of negatives and losses; impossible combinations are refused.

    negatives: {distribution: {kind: uniform}, weighting: tail, num_negatives: 64}
    loss: {kind: softmax}

`longtail.training.learning.objectives` makes the parts from it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from longtail.models.errors import ConfigError

Positive = Annotated[int, Field(ge=1)]
WeightName = Literal["constant", "importance", "relative", "tail", "equalised", "adaptive"]


class Section(BaseModel):
    """Base of all sections of a configuration: fields are described by their docstrings."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class UniformConfig(Section):
    """Independent uniform draws."""

    kind: Literal["uniform"] = "uniform"


class UniformSubsetConfig(Section):
    """Uniform draws without replacement."""

    kind: Literal["uniform_subset"] = "uniform_subset"


class FrequencyConfig(Section):
    """Draws in proportion to a power of the training frequency."""

    kind: Literal["frequency"] = "frequency"
    exponent: float = Field(default=1.0, ge=0)
    """0 is uniform, 1 the training distribution."""


class WithinBatchConfig(Section):
    """The positives of the batch's other pairs."""

    kind: Literal["within_batch"] = "within_batch"


class AllLabelsConfig(Section):
    """Every label, without sampling."""

    kind: Literal["all"] = "all"


class HardConfig(Section):
    """A ranker's best wrong labels, mixed with uniform draws."""

    kind: Literal["hard"] = "hard"
    share: float = Field(default=0.5, gt=0, le=1)
    """Probability that a draw is one of them."""


class SoftmaxConfig(Section):
    """The softmax of the current scores of all labels."""

    kind: Literal["softmax"] = "softmax"


class ClusterConfig(Section):
    """Its approximation by clusters of labels."""

    kind: Literal["clusters"] = "clusters"


class TreeFitConfig(Section):
    """How a label tree is fitted (Bamler & Mandt 2020, section 3)."""

    regulariser: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """lambda_n; none: the best power of ten by cross-validation, in a dozen fits or so."""


class TreeConfig(TreeFitConfig):
    """The label tree."""

    kind: Literal["tree"] = "tree"


DistributionConfig = Annotated[
    UniformConfig
    | UniformSubsetConfig
    | FrequencyConfig
    | WithinBatchConfig
    | AllLabelsConfig
    | HardConfig
    | SoftmaxConfig
    | ClusterConfig
    | TreeConfig,
    Field(discriminator="kind"),
]

_WITHOUT_NUMBER = ("within_batch", "all")
_SHAREABLE = ("uniform", "uniform_subset", "frequency")


class NegativesConfig(Section):
    """Which labels a pair is contrasted with, and how much they weigh (Rawat et al. 2021)."""

    distribution: DistributionConfig
    """Sampling distribution q."""
    weighting: WeightName | None = None
    """Weight w of a negative (Table 1, Eq. 15-16); none for ordered losses, which weigh by rank."""
    num_negatives: Positive | None = None
    """Negatives a pair, m; none for 'within_batch' and 'all', which have as many as there are."""
    exclude: Literal["none", "positive", "document"] = "document"
    """What may not be drawn: nothing, the pair's label, or all labels of its document."""
    shared: bool = False
    """Draw once for all pairs of a batch, as a dual encoder has to."""

    @model_validator(mode="after")
    def _refuse_impossible(self) -> NegativesConfig:
        kind = self.distribution.kind
        if kind in _WITHOUT_NUMBER and self.num_negatives is not None:
            raise ValueError(
                f"num_negatives is {self.num_negatives}, but distribution '{kind}' settles how "
                "many there are; drop it"
            )
        if kind not in _WITHOUT_NUMBER and self.num_negatives is None:
            raise ValueError(f"distribution '{kind}' needs num_negatives, how many a pair has")
        if self.shared and kind not in _SHAREABLE:
            raise ValueError(
                f"distribution '{kind}' can't be drawn once for all pairs; drop 'shared', or "
                f"take one of {', '.join(_SHAREABLE)}"
            )
        if kind == "all" and self.exclude == "none":
            raise ValueError(
                "distribution 'all' with exclude 'none' would count each positive twice"
            )
        is_list_alone = isinstance(self.distribution, HardConfig) and self.distribution.share == 1
        if is_list_alone and self.weighting not in {None, "constant"}:
            raise ValueError(
                f"weighting '{self.weighting}' needs log q of every label, but 'hard' with share 1 "
                "draws none outside the document's list; lower the share, or take 'constant'"
            )
        return self

    def most_pairs(self, num_labels: int) -> int | None:
        """Return how many pairs, with their negatives, have at most so many labels in all.

        0 if not even one has; None if they are no more labels however many pairs there are.
        """
        if self.distribution.kind == "all":
            return None
        if self.distribution.kind == "within_batch":
            return num_labels
        assert self.num_negatives is not None
        return max(
            0,
            num_labels - self.num_negatives
            if self.shared
            else num_labels // (self.num_negatives + 1),
        )

    @property
    def is_uniform_subset(self) -> bool:
        """Whether what a pair gets is a uniform subset of the labels, perhaps all."""
        return self.distribution.kind in {"uniform_subset", "all"}


class SoftmaxLossConfig(Section):
    """Softmax cross-entropy, sampled or not, with or without margins (Eq. 3, 4, 6, 7)."""

    kind: Literal["softmax"] = "softmax"


class DecoupledLossConfig(Section):
    """A loss of each score by itself (Eq. 5, 8)."""

    kind: Literal["decoupled"] = "decoupled"
    part: Literal["logistic", "hinge", "squared_hinge", "cosine_contrastive"] = "logistic"
    """Its parts; the contrastive one wants cosines as scores."""


class OrderedLossConfig(Section):
    """Stochastic negative mining (Reddi et al. 2019, Algorithm 1)."""

    kind: Literal["ordered"] = "ordered"
    margin_loss: Literal["hinge", "logistic_base_2", "squared_hinge", "exponential", "ramp"] = (
        "hinge"
    )
    """phi of Reddi et al."""
    form: Literal["pairwise", "binary"] = "binary"
    """POWL or BOWL."""
    rank_weights: Positive | tuple[Annotated[float, Field(ge=0)], ...] = 1
    """vartheta of Reddi et al.: a number k, of which the k hardest negatives count alike (Lemma 2,
    Top-k); or the weights of rank 1, 2, ..., the hardest first."""

    @field_validator("rank_weights")
    @classmethod
    def _refuse_increasing(cls, value: int | tuple[float, ...]) -> int | tuple[float, ...]:
        if isinstance(value, int):
            return value
        for rank, (harder, easier) in enumerate(pairwise(value), start=1):
            if easier > harder:
                raise ValueError(
                    f"rank_weights increase: {harder} at rank {rank}, then {easier}; expected "
                    "weights that never rise (Reddi et al. 2019, Theorem 2)"
                )
        if not any(value):
            raise ValueError("rank_weights are 0 at every rank; expected one above 0")
        return value

    @property
    def num_ranks(self) -> int:
        """Ranks that have a weight."""
        return self.rank_weights if isinstance(self.rank_weights, int) else len(self.rank_weights)


class DeplLossConfig(Section):
    """Binary cross-entropy over the batch's label subset (DEPL section 3.3)."""

    kind: Literal["depl"] = "depl"


class DecoupledSoftmaxLossConfig(Section):
    """DEXML's decoupled softmax over the batch's label subset."""

    kind: Literal["decoupled_softmax"] = "decoupled_softmax"


class SoftTopKLossConfig(Section):
    """DEXML's soft top-k over the batch's label subset."""

    kind: Literal["soft_top_k"] = "soft_top_k"
    k: Positive = 5
    """Labels that the top has room for."""


SubsetLossConfig = DeplLossConfig | DecoupledSoftmaxLossConfig | SoftTopKLossConfig
LossConfig = Annotated[
    SoftmaxLossConfig | DecoupledLossConfig | OrderedLossConfig | SubsetLossConfig,
    Field(discriminator="kind"),
]


class LearningConfig(Section):
    """What a step scores and what the scores cost."""

    negatives: NegativesConfig | None = None
    """Negatives of losses over pairs; losses over the batch's label subset have none."""
    loss: LossConfig = DeplLossConfig()
    """Over pairs: softmax, decoupled, ordered. Over the label subset: the others."""

    @model_validator(mode="after")
    def _refuse_impossible(self) -> LearningConfig:
        refuse_impossible(self.loss, self.negatives)
        return self

    def check(self, num_labels: int, num_hard: int) -> None:
        """Refuse what the number of labels makes impossible.

        Args:
            num_labels: L.
            num_hard: Hard negatives a document.

        Raises:
            ConfigError: There are more negatives a pair than the distribution has labels to draw
                from, or more ranks than negatives, or a top of all labels.
        """
        loss = self.loss
        if isinstance(loss, SoftTopKLossConfig) and loss.k >= num_labels:
            raise ConfigError(
                f"loss 'soft_top_k': k is {loss.k}, of {num_labels} labels; expected fewer than all"
            )
        if isinstance(loss, OrderedLossConfig) and loss.num_ranks >= num_labels:
            raise ConfigError(
                f"loss 'ordered': rank_weights has {loss.num_ranks} ranks, but a pair "
                f"has at most {num_labels - 1} negatives (B >= k); expected fewer ranks"
            )
        if self.negatives is not None:
            _refuse_beyond_support(self.negatives, num_labels, num_hard)


def refuse_impossible(loss: LossConfig, negatives: NegativesConfig | None) -> None:
    """Refuse a loss and negatives that don't go together.

    Raises:
        ValueError: They don't.
    """
    if isinstance(loss, SubsetLossConfig):
        if negatives is not None:
            raise ValueError(
                f"loss '{loss.kind}' is taken over the batch's label subset; drop 'negatives'"
            )
        return
    if negatives is None:
        raise ValueError(
            f"loss '{loss.kind}' needs 'negatives': distribution, weighting and num_negatives"
        )
    if isinstance(loss, OrderedLossConfig):
        _refuse_mining(loss, negatives)
    elif negatives.weighting is None:
        raise ValueError(f"loss '{loss.kind}' needs weighting, how much a negative counts")


def _refuse_mining(loss: OrderedLossConfig, negatives: NegativesConfig) -> None:
    if negatives.weighting is not None:
        raise ValueError(
            f"loss 'ordered' weighs by rank (rank_weights); drop weighting '{negatives.weighting}'"
        )
    if not negatives.is_uniform_subset:
        raise ValueError(
            "loss 'ordered' mines a uniform subset (Algorithm 1): got distribution "
            f"'{negatives.distribution.kind}', expected 'uniform_subset' or 'all'"
        )
    if negatives.exclude == "none":
        raise ValueError("loss 'ordered' can't have the positive among the negatives it mines")
    if negatives.num_negatives is not None and negatives.num_negatives < loss.num_ranks:
        raise ValueError(
            f"loss 'ordered': rank_weights has {loss.num_ranks} ranks, but "
            f"num_negatives is {negatives.num_negatives}; expected at least as many (B >= k)"
        )


def _refuse_beyond_support(negatives: NegativesConfig, num_labels: int, num_hard: int) -> None:
    support = num_labels - (negatives.exclude != "none")
    if isinstance(negatives.distribution, HardConfig) and negatives.distribution.share == 1:
        support = num_hard
    if negatives.num_negatives is not None and negatives.num_negatives > support:
        raise ConfigError(
            f"negatives: num_negatives is {negatives.num_negatives}, but distribution "
            f"'{negatives.distribution.kind}' has {support} labels to draw from; lower it"
        )
