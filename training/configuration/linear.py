"""The configuration of the linear scorers: negatives, loss and steps."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from longtail.models.names import CorrectionName
from longtail.training.configuration.learning import (
    DecoupledLossConfig,
    FrequencyConfig,
    LearningConfig,
    LossConfig,
    NegativesConfig,
    Section,
    SoftmaxLossConfig,
    TreeFitConfig,
    WithinBatchConfig,
    refuse_impossible,
)

Positive = Annotated[int, Field(ge=1)]


_DEFAULT_NEGATIVES = NegativesConfig(
    distribution=FrequencyConfig(exponent=0.5),
    weighting="importance",
    num_negatives=256,
    shared=True,
)


class LinearConfig(Section):
    """Linear scorers over the trained encoder's document vectors (Bamler & Mandt 2020)."""

    negatives: NegativesConfig = _DEFAULT_NEGATIVES
    """Labels that a pair is contrasted with. By default 256 a step by the root of their frequency,
    with importance weights, so that the scores are those of a softmax over all labels; which it is
    with no more labels. The label tree, as distribution, has its settings there."""
    loss: LossConfig = SoftmaxLossConfig()
    """Of pairs and their negatives: softmax, decoupled or ordered."""
    learning_rate: float = Field(default=0.3, gt=0, allow_inf_nan=False)
    """Of Adagrad, for document vectors with a mean square length of 1."""
    batch_size: Positive = 1000
    """Pairs of a document and a label, a step."""
    epochs: Positive = 10
    """Passes over all pairs."""
    storage: Literal["float32", "bfloat16"] = "float32"
    """Of weights and Adagrad's sums in training; bfloat16 is rounded at random."""

    @model_validator(mode="after")
    def _refuse_impossible_parts(self) -> LinearConfig:
        refuse_impossible(self.loss, self.negatives)
        if self.negatives.distribution.kind not in _KINDS:
            raise ValueError(
                f"distribution '{self.negatives.distribution.kind}' is not for linear scorers; "
                f"expected one of {', '.join(_KINDS)}"
            )
        if isinstance(self.loss, DecoupledLossConfig) and self.loss.part == "cosine_contrastive":
            raise ValueError("loss part 'cosine_contrastive' wants cosines; linear scores are none")
        return self

    def fitted_to(self, num_labels: int, most_carried: float = 0.0) -> LinearConfig:
        """Return the configuration for a corpus: few labels are all scored, not drawn, by default.

        Other negatives and losses than the default's are left as they are, and refused where they
        can't be.

        Args:
            num_labels: With training documents.
            most_carried: Largest share of q that the labels of one document have; they are no
                negatives of its pairs, so something must be left to draw.
        """
        default = LinearConfig()
        is_default = (self.negatives, self.loss) == (default.negatives, default.loss)
        is_drawn = num_labels > _MOST_SCORED and most_carried <= _MAX_CARRIED
        if not is_default or is_drawn:
            return self
        parts = _ALL_LABELS if num_labels > 1 else _ONE_LABEL
        return LinearConfig.model_validate(self.model_dump() | parts)

    @property
    def learning(self) -> LearningConfig:
        """Negatives and loss."""
        return LearningConfig(negatives=self.negatives, loss=self.loss)

    @property
    def tree_fit(self) -> TreeFitConfig | None:
        """The label tree that negatives are drawn from."""
        given = self.negatives.distribution
        return given if isinstance(given, TreeFitConfig) else None

    @property
    def correction(self) -> CorrectionName:
        """What makes the scores those of a softmax.

        Scores of a softmax or logistic loss with constant weights lack log q (Rawat et al. 2021,
        Table 2), where nothing is excluded; those with importance weights lack nothing.
        """
        is_softmax = self.loss in {SoftmaxLossConfig(), DecoupledLossConfig()}
        is_constant = (self.negatives.weighting, self.negatives.exclude) == ("constant", "none")
        if not (is_softmax and is_constant):
            return "none"
        if isinstance(self.negatives.distribution, TreeFitConfig):
            return "tree"
        is_prior = self.negatives.distribution in {FrequencyConfig(), WithinBatchConfig()}
        return "prior" if is_prior else "none"


_KINDS = ("uniform", "uniform_subset", "frequency", "within_batch", "all", "tree")
_MOST_SCORED = 256
_MAX_CARRIED = 0.98
"""A little less than where `longtail.training.learning.sampling` refuses to draw."""
_ALL_LABELS: dict[str, Any] = {
    "negatives": {
        "distribution": {"kind": "all"}, "weighting": "importance", "exclude": "positive"
    },
}  # fmt: skip
_ONE_LABEL: dict[str, Any] = {  # there is no other, so that draws may be the label itself
    "negatives": {
        "distribution": {"kind": "uniform"}, "weighting": "constant", "exclude": "none",
        "num_negatives": 1,
    },
    "loss": {"kind": "decoupled"},
}  # fmt: skip
