"""The configuration of losses: each kind is one class with its keys, its limits and its formula.

    loss: {kind: softmax}

A class with `register` above it is all that a new loss needs. The built-in formulas, in
`longtail.training.losses`, need PyTorch, so they are imported where they are used.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cache, reduce
from itertools import pairwise
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import (
    Field,
    PlainValidator,
    SerializeAsAny,
    TypeAdapter,
    field_validator,
    model_validator,
)

from longtail.models.errors import ConfigError
from longtail.training.configuration.negatives import NegativesConfig, Positive, Section

if TYPE_CHECKING:  # brings PyTorch, which a run without an encoder does not need
    from longtail.training.losses import PairLoss, SubsetLoss


class Loss(Section):
    """Base of all kinds of losses; derive from one of the two below."""

    kind: str
    """Its name in a configuration: a `Literal` with one value, which is the default."""

    @property
    def of_cosines(self) -> str:
        """The setting that needs cosines as scores, in words; empty where any score will do."""
        return ""

    @property
    def lacks_log_q(self) -> bool:
        """Whether constant weights leave log q out of the scores (Rawat et al. 2021, Table 2)."""
        return False

    @abstractmethod
    def refuse(self, negatives: NegativesConfig | None) -> None:
        """Refuse negatives that do not go with the loss."""

    def check(self, num_labels: int) -> None:
        """Refuse a corpus with too few labels."""


class LossOverPairs(Loss):
    """Base of losses of a document and one of its labels against negatives."""

    def refuse(self, negatives: NegativesConfig | None) -> None:
        """Refuse absent negatives, and those that `refuse_negatives` refuses."""
        if negatives is None:
            raise ValueError(
                f"loss '{self.kind}' needs 'negatives': distribution, weighting and num_negatives"
            )
        self.refuse_negatives(negatives)

    def refuse_negatives(self, negatives: NegativesConfig) -> None:
        """Refuse negatives without a weighting."""
        if negatives.weighting is None:
            raise ValueError(f"loss '{self.kind}' needs weighting, how much a negative counts")

    @abstractmethod
    def formula(self, num_labels: int, num_negatives: int) -> PairLoss:
        """Return the loss as a function of scores and log weights.

        Args:
            num_labels: L.
            num_negatives: m, a pair.
        """


class LossOverSubset(Loss):
    """Base of losses of a batch of documents over one subset of the labels."""

    def refuse(self, negatives: NegativesConfig | None) -> None:
        """Refuse any negatives."""
        if negatives is not None:
            raise ValueError(
                f"loss '{self.kind}' is taken over the batch's label subset; drop 'negatives'"
            )

    @abstractmethod
    def formula(self) -> SubsetLoss:
        """Return the loss as a function of scores and of which of them are of positives."""


LOSSES: dict[str, type[Loss]] = {}
"""All kinds, by name."""
_Kind = TypeVar("_Kind", bound=type[Loss])


def register(loss: _Kind) -> _Kind:
    """Add a kind of loss, as a decorator of its class; configurations can name it from then on."""
    name = loss.__pydantic_fields__["kind"].default
    if name in LOSSES:
        raise ConfigError(f"loss {name!r}: there is one of this name; choose another name")
    LOSSES[name] = loss
    _any_loss.cache_clear()
    return loss


def _kinds() -> Any:
    return Annotated[reduce(or_, LOSSES.values()), Field(discriminator="kind")]


@cache
def _any_loss() -> Any:
    return TypeAdapter(_kinds())


@register
class SoftmaxLossConfig(LossOverPairs):
    """Softmax cross-entropy, sampled or not, with or without margins (Eq. 3, 4, 6, 7)."""

    kind: Literal["softmax"] = "softmax"

    @property
    def lacks_log_q(self) -> bool:
        """Always."""
        return True

    def formula(self, num_labels: int, num_negatives: int) -> PairLoss:
        """Return the softmax loss."""
        del num_labels, num_negatives
        from longtail.training.losses import softmax_loss

        return softmax_loss


@register
class DecoupledLossConfig(LossOverPairs):
    """A loss of each score by itself (Eq. 5, 8)."""

    kind: Literal["decoupled"] = "decoupled"
    part: Literal["logistic", "hinge", "squared_hinge", "cosine_contrastive"] = "logistic"
    """Its parts; the contrastive one wants cosines as scores."""

    @property
    def of_cosines(self) -> str:
        """The contrastive parts."""
        return "part 'cosine_contrastive'" if self.part == "cosine_contrastive" else ""

    @property
    def lacks_log_q(self) -> bool:
        """Whether its parts are logistic."""
        return self.part == "logistic"

    def formula(self, num_labels: int, num_negatives: int) -> PairLoss:
        """Return the loss of its parts."""
        del num_labels, num_negatives
        from longtail.training.losses import DECOUPLED_LOSSES

        return DECOUPLED_LOSSES[self.part]


@register
class OrderedLossConfig(LossOverPairs):
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

    def _num_ranks(self) -> int:
        return self.rank_weights if isinstance(self.rank_weights, int) else len(self.rank_weights)

    def refuse_negatives(self, negatives: NegativesConfig) -> None:
        """Refuse what Algorithm 1 does not mine, a weighting, and fewer negatives than ranks."""
        if negatives.weighting is not None:
            raise ValueError(
                "loss 'ordered' weighs by rank (rank_weights); drop weighting "
                f"'{negatives.weighting}'"
            )
        if not negatives.is_uniform_subset:
            raise ValueError(
                "loss 'ordered' mines a uniform subset (Algorithm 1): got distribution "
                f"'{negatives.distribution.kind}', expected 'uniform_subset' or 'all'"
            )
        if negatives.exclude == "none":
            raise ValueError("loss 'ordered' can't have the positive among the negatives it mines")
        if negatives.num_negatives is not None and negatives.num_negatives < self._num_ranks():
            raise ValueError(
                f"loss 'ordered': rank_weights has {self._num_ranks()} ranks, but num_negatives is "
                f"{negatives.num_negatives}; expected at least as many (B >= k)"
            )

    def check(self, num_labels: int) -> None:
        """Refuse more ranks than negatives."""
        if self._num_ranks() >= num_labels:
            raise ConfigError(
                f"loss 'ordered': rank_weights has {self._num_ranks()} ranks, but a pair "
                f"has at most {num_labels - 1} negatives (B >= k); expected fewer ranks"
            )

    def formula(self, num_labels: int, num_negatives: int) -> PairLoss:
        """Return the ordered loss, over the negatives that are drawn."""
        from longtail.training.losses import MARGIN_LOSSES, MiningLoss, OrderedLoss, mining_weights

        weights = self.rank_weights
        if isinstance(weights, int):
            weights = mining_weights(weights, num_labels=num_labels, num_sampled=num_negatives)
        return MiningLoss(OrderedLoss(MARGIN_LOSSES[self.margin_loss], self.form), weights)


@register
class DeplLossConfig(LossOverSubset):
    """Binary cross-entropy over the batch's label subset (DEPL section 3.3)."""

    kind: Literal["depl"] = "depl"

    def formula(self) -> SubsetLoss:
        """Return L_dual."""
        from longtail.training.losses import depl_loss

        return depl_loss


LossConfig = Annotated[
    SerializeAsAny[Loss],
    PlainValidator(lambda x: _any_loss().validate_python(x), json_schema_input_type=_kinds()),
]
"""The type of a key that takes any kind of loss."""


class LearningConfig(Section):
    """What a step scores and what the scores cost."""

    negatives: NegativesConfig | None = None
    """Negatives of losses over pairs; losses over the batch's label subset have none."""
    loss: LossConfig = DeplLossConfig()
    """Over pairs: softmax, decoupled, ordered. Over the label subset: depl."""

    @model_validator(mode="after")
    def _refuse_impossible(self) -> LearningConfig:
        self.loss.refuse(self.negatives)
        return self

    def check(self, num_labels: int, num_hard: int) -> None:
        """Refuse what the number of labels makes impossible.

        Args:
            num_labels: L.
            num_hard: Hard negatives a document.
        """
        self.loss.check(num_labels)
        if self.negatives is not None:
            self.negatives.check(num_labels, num_hard)
