"""The configuration of the linear scorers: the method, its negatives and its label tree."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

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
MethodName = Literal[
    "adversarial", "uniform", "frequency", "nce", "one_versus_each", "augment_and_reduce", "softmax"
]
WITH_TREE: tuple[MethodName, ...] = ("adversarial", "nce")
WITH_REGULARISER: tuple[MethodName, ...] = ("adversarial", "uniform", "frequency", "nce")
WITH_DRAWS = tuple(name for name in get_args(MethodName) if name != "softmax")


class LinearConfig(Section):
    """Linear scorers over the trained encoder's document vectors (Bamler & Mandt 2020).

    What a method has no use for is none, and is refused where it is given.
    """

    method: MethodName | None = None
    """What is minimised over which negatives; see `docs/explanation/linear-scorers.md`. None, the
    default, with `negatives` and `loss`, which say it part by part."""
    num_negatives: Positive | None = None
    """Negatives a pair, 8 by default; none for `softmax`, which sums over all labels."""
    regulariser: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """lambda of Eq. 6, 0.001 by default; none but for negative sampling and NCE."""
    tree: TreeFitConfig | None = None
    """What `adversarial` and `nce` draw from; none for the others."""
    negatives: NegativesConfig | None = None
    """In the place of a method; the label tree, as distribution, has its settings there. Where
    neither is given: 256 labels a step by the root of their frequency, with importance weights, so
    that the scores are those of a softmax over all labels; which it is with no more labels."""
    loss: LossConfig | None = None
    """Of pairs and their negatives: softmax, decoupled or ordered."""
    learning_rate: float = Field(default=0.3, gt=0, allow_inf_nan=False)
    """Of Adagrad, for document vectors with a mean square length of 1."""
    batch_size: Positive = 1000
    """Pairs of a document and a label, a step."""
    epochs: Positive = 10
    """Passes over all pairs."""
    storage: Literal["float32", "bfloat16"] = "float32"
    """Of weights and Adagrad's sums in training; bfloat16 is rounded at random."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, content: Any) -> Any:
        """Give the settings that the method uses their defaults."""
        if not isinstance(content, dict):
            return content
        if not {"method", "negatives", "loss"} & content.keys():
            content = _DEFAULT_PARTS | content
        method = content.get("method")
        used = {name: default for name, default in _DEFAULTS.items() if method in _USED_BY[name]}
        return used | content

    @model_validator(mode="after")
    def _refuse_ignored(self) -> LinearConfig:
        for name, methods in _USED_BY.items():
            if (getattr(self, name) is None) == (self.method in methods):
                fault = "is missing for" if self.method in methods else "decides nothing with"
                method = "no method" if self.method is None else f"method '{self.method}'"
                raise ValueError(
                    f"{name} {fault} {method}; expected with {', '.join(methods)} alone"
                )
        return self

    @model_validator(mode="after")
    def _refuse_impossible_parts(self) -> LinearConfig:
        if self.negatives is None and self.loss is None:
            if self.method is None:
                raise ValueError("there is no method; expected one, or 'negatives' and 'loss'")
            return self
        if self.method is not None:
            raise ValueError(f"method '{self.method}' has its own negatives and loss; drop these")
        if self.negatives is None or self.loss is None:
            raise ValueError("'negatives' and 'loss' go together; one of them is missing")
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

        Other negatives than the default's, and methods, are left as they are, and refused where
        they can't be.

        Args:
            num_labels: With training documents.
            most_carried: Largest share of q that the labels of one document have; they are no
                negatives of its pairs, so something must be left to draw.
        """
        is_drawn = num_labels > _DEFAULT_NEGATIVES and most_carried <= _MAX_CARRIED
        if self.negatives != LinearConfig().negatives or is_drawn:
            return self
        # A single label has no other to be compared with; uniform draws may be the label itself.
        method = "softmax" if num_labels > 1 else "uniform"
        kept = self.model_dump(include={"learning_rate", "batch_size", "epochs", "storage"})
        return LinearConfig.model_validate(kept | {"method": method})

    @property
    def learning(self) -> LearningConfig | None:
        """Negatives and loss; none with a method."""
        if self.negatives is None or self.loss is None:
            return None
        return LearningConfig(negatives=self.negatives, loss=self.loss)

    @property
    def tree_fit(self) -> TreeFitConfig | None:
        """The label tree that negatives are drawn from."""
        given = None if self.negatives is None else self.negatives.distribution
        return given if isinstance(given, TreeFitConfig) else self.tree

    @property
    def correction(self) -> CorrectionName:
        """What makes the scores those of a softmax.

        Scores of a softmax or logistic loss with constant weights lack log q (Rawat et al. 2021,
        Table 2), where nothing is excluded; those with importance weights lack nothing.
        """
        if self.method is not None:
            return _CORRECTIONS.get(self.method, "none")
        assert self.negatives is not None
        is_softmax = self.loss in {SoftmaxLossConfig(), DecoupledLossConfig()}
        is_constant = (self.negatives.weighting, self.negatives.exclude) == ("constant", "none")
        if not (is_softmax and is_constant):
            return "none"
        if isinstance(self.negatives.distribution, TreeFitConfig):
            return "tree"
        is_prior = self.negatives.distribution in {FrequencyConfig(), WithinBatchConfig()}
        return "prior" if is_prior else "none"


_KINDS = ("uniform", "uniform_subset", "frequency", "within_batch", "all", "tree")
_CORRECTIONS: dict[MethodName, CorrectionName] = {"adversarial": "tree", "frequency": "prior"}
_DEFAULT_NEGATIVES = 256
_MAX_CARRIED = 0.98
"""A little less than where `longtail.training.learning.sampling` refuses to draw."""
_DEFAULT_PARTS: dict[str, Any] = {
    "negatives": {
        "distribution": {"kind": "frequency", "exponent": 0.5}, "weighting": "importance",
        "num_negatives": _DEFAULT_NEGATIVES,
        "exclude": "document", "shared": True,
    },
    "loss": {"kind": "softmax"},
}  # fmt: skip
_DEFAULTS: dict[str, Any] = {"num_negatives": 8, "regulariser": 1e-3, "tree": {}}
_USED_BY: dict[str, tuple[str, ...]] = {
    "num_negatives": WITH_DRAWS,
    "regulariser": WITH_REGULARISER,
    "tree": WITH_TREE,
}
