"""The configuration of negatives; impossible combinations are refused.

    negatives: {distribution: {kind: uniform}, weighting: tail, num_negatives: 64}

`longtail.training.learning.objectives` makes the parts from it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

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
        """Return how many pairs, with their negatives, have at most `num_labels` labels in all.

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

    def check(self, num_labels: int, num_hard: int) -> None:
        """Refuse more negatives a pair than the distribution has labels to draw from.

        Args:
            num_labels: L.
            num_hard: Hard negatives a document.
        """
        support = num_labels - (self.exclude != "none")
        if isinstance(self.distribution, HardConfig) and self.distribution.share == 1:
            support = num_hard
        if self.num_negatives is not None and self.num_negatives > support:
            raise ConfigError(
                f"negatives: num_negatives is {self.num_negatives}, but distribution "
                f"'{self.distribution.kind}' has {support} labels to draw from; lower it"
            )
