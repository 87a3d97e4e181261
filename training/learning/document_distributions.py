"""Sampling distributions that differ by document: hard negatives, a label tree, current scores.

The softmax of the current scores is drawn from at the cost of scoring all labels (Rawat et al.
2021, section 2.2).

On a GPU, PyTorch's sums along a row are not deterministic, so `cumsum` of floating-point numbers,
and `multinomial`, which uses it, raise when training asks for reproducible results. Sums of
integers are exact in any order: there the weights are rounded to multiples of 2^-52.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Float32, Float64, Int64
from torch import Tensor

from longtail.models.errors import DataError
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.learning.sampling import Negatives, Pairs, draw_each, is_listed

UNIFORM_SHARE = 0.05
"""Share of uniform draws among those of a model or a tree: a good one has almost all of q on a
document's own labels, and those may not be drawn."""


@dataclass(frozen=True, slots=True)
class HardNegatives:
    """A ranker's best wrong labels of the document, mixed with uniform draws.

    q = share / h for the h labels of the document's list, plus (1 - share) / L for all labels.
    A document without a list gets uniform draws alone.

    Attributes:
        hard: Hard negatives of every document of the corpus, padded with `NO_LABEL`, as of
            `hard_negatives`.
        share: Probability that a draw comes from the list, 0 to 1; with 1, labels outside it are
            never drawn.
        num_labels: L.
        num_draws: m, a pair.
    """

    hard: Int64[Tensor, "document hard"]
    share: float
    num_labels: int
    num_draws: int

    def __post_init__(self) -> None:
        if self.share < 1:
            return
        is_empty = (self.hard == NO_LABEL).all(dim=1)
        if bool(is_empty.any()):
            raise DataError(
                f"hard negatives: document {int(is_empty.nonzero()[0, 0])} has none, and a share "
                "of 1 leaves nothing else to draw; lower the share"
            )

    def draw(self, pairs: Pairs, generator: torch.Generator) -> Negatives:
        """Draw m labels for each pair, with replacement."""
        lists = _Lists.of(self.hard.index_select(0, pairs.documents), self.share, self.num_labels)

        def sample(rows: Int64[Tensor, draw]) -> Int64[Tensor, draw]:
            anywhere = torch.randint(
                self.num_labels, rows.shape, generator=generator, device=rows.device
            )
            return lists.replaced(rows, anywhere, generator)

        return draw_each(pairs, self.num_draws, sample, lists.log_q)

    def log_q(self, pairs: Pairs, labels: Int64[Tensor, "#batch k"]) -> Float[Tensor, "batch k"]:
        """Return the logarithm of the mixture; -inf for labels that are never drawn."""
        lists = self.hard.index_select(0, pairs.documents)
        return _Lists.of(lists, self.share, self.num_labels).log_q(labels)


@dataclass(frozen=True, slots=True)
class _Lists:
    """The hard negatives of a batch.

    Attributes:
        labels: Labels of each pair's document, `NO_LABEL` at the end.
        sizes: How long each list is, at least 1.
        shares: How often each is drawn from: 0 where it is empty.
        num_labels: L.
    """

    labels: Int64[Tensor, "batch hard"]
    sizes: Int64[Tensor, batch]
    shares: Float[Tensor, batch]
    num_labels: int

    @classmethod
    def of(cls, labels: Int64[Tensor, "batch hard"], share: float, num_labels: int) -> _Lists:
        sizes = (labels != NO_LABEL).sum(dim=1)
        return cls(labels, sizes.clamp(min=1), share * (sizes > 0).float(), num_labels)

    def replaced(
        self,
        rows: Int64[Tensor, draw],
        anywhere: Int64[Tensor, draw],
        generator: torch.Generator,
    ) -> Int64[Tensor, draw]:
        """Put labels of the rows' lists in the place of a share of labels drawn anywhere."""
        coin, place = torch.rand(2, len(rows), generator=generator, device=rows.device)
        place = (place * self.sizes.index_select(0, rows)).long()
        listed = self.labels.flatten().index_select(0, rows * self.labels.shape[1] + place)
        return torch.where(coin < self.shares.index_select(0, rows), listed, anywhere)

    def log_q(self, labels: Int64[Tensor, "#batch k"]) -> Float[Tensor, "batch k"]:
        """Return the logarithm of the mixture; -inf for labels that are never drawn."""
        anywhere = ((1 - self.shares) / self.num_labels).unsqueeze(1)
        in_list = anywhere + (self.shares / self.sizes).unsqueeze(1)
        return torch.where(is_listed(labels, self.labels), in_list.log(), anywhere.log())


@runtime_checkable  # the test run checks annotations by isinstance
class TreeSampler(Protocol):
    """The slot for adversarial negatives: what `models.label_tree.tree.LabelTree` offers."""

    def project(self, vectors: Float32[Tensor, "batch dim"], /) -> Float32[Tensor, "batch k"]:
        """Return the features of document vectors, which the rest takes."""
        ...

    def sample(
        self, features: Float32[Tensor, "batch k"], num: int, generator: torch.Generator, /
    ) -> Int64[Tensor, "batch num"]:
        """Draw labels from p_n for each document, independently."""
        ...

    def log_prob(
        self, features: Float32[Tensor, "batch k"], labels: Int64[Tensor, "batch m"], /
    ) -> Float32[Tensor, "batch m"]:
        """Return log p_n, in nats, of labels of each document."""
        ...


@dataclass(frozen=True, slots=True)
class PartlyUniform:
    """A tree's draws mixed with uniform ones.

    Without these, the labels that may not be drawn for a pair can have almost all of a good tree's
    probability.

    Attributes:
        tree: Over the vectors of the pairs.
        share: Probability that a draw is uniform, above 0 and below 1.
        num_labels: L.
    """

    tree: TreeSampler
    share: float
    num_labels: int

    def project(self, vectors: Float32[Tensor, "batch dim"]) -> Float32[Tensor, "batch k"]:
        """Return the tree's features of document vectors."""
        return self.tree.project(vectors)

    def sample(
        self, features: Float32[Tensor, "batch k"], num: int, generator: torch.Generator
    ) -> Int64[Tensor, "batch num"]:
        """Draw labels for each document, independently."""
        drawn = self.tree.sample(features, num, generator)
        coin = torch.rand(drawn.shape, generator=generator, device=drawn.device)
        anywhere = torch.randint(
            self.num_labels, drawn.shape, generator=generator, device=drawn.device
        )
        return torch.where(coin < self.share, anywhere, drawn)

    def log_prob(
        self, features: Float32[Tensor, "batch k"], labels: Int64[Tensor, "batch m"]
    ) -> Float32[Tensor, "batch m"]:
        """Return the logarithm of the mixture, in nats."""
        of_tree = self.tree.log_prob(features, labels) + math.log1p(-self.share)
        return of_tree.logaddexp(torch.full_like(of_tree, math.log(self.share / self.num_labels)))


@dataclass(frozen=True, slots=True)
class TreeNegatives:
    """Independent draws from a label tree's p_n, given the document.

    Attributes:
        tree: Over the vectors of the pairs.
        num_draws: m, a pair.
    """

    tree: TreeSampler
    num_draws: int

    def draw(self, pairs: Pairs, generator: torch.Generator) -> Negatives:
        """Draw m labels for each pair, with replacement."""
        features = self.tree.project(pairs.document_vectors().float())

        def sample(rows: Int64[Tensor, draw]) -> Int64[Tensor, draw]:
            return self.tree.sample(features[rows], 1, generator).squeeze(1)

        return draw_each(
            pairs, self.num_draws, sample, lambda labels: self.tree.log_prob(features, labels)
        )


_UNITS = 2.0**52


def cumulative_sums(shares: Float64[Tensor, "row entry"]) -> Float64[Tensor, "row entry"]:
    """Return the sums of each row's entries up to each entry, which never fall.

    Args:
        shares: At least 0; those of a row sum up to about 1.
    """
    if _is_on_cpu(shares):
        return shares.cumsum(dim=1)
    return (shares * _UNITS).round().long().cumsum(dim=1).double() / _UNITS


def draw_with_replacement(
    weights: Float[Tensor, "row entry"], num_draws: int, generator: torch.Generator
) -> Int64[Tensor, "row draw"]:
    """Draw entries of each row in proportion to their weights, independently.

    Args:
        weights: At least 0, and not all 0 in any row.
        num_draws: Number of draws for each row.
        generator: On the device of the weights.
    """
    if _is_on_cpu(weights):
        return torch.multinomial(weights, num_draws, replacement=True, generator=generator)
    exact = weights.double()
    sums = cumulative_sums(exact / exact.sum(dim=1, keepdim=True))
    places = torch.rand(
        (len(weights), num_draws), generator=generator, device=weights.device, dtype=torch.float64
    )
    # The first entry whose sum is above the place: never one of weight 0.
    found = torch.searchsorted(sums, places * sums[:, -1:], right=True)
    return found.clamp(max=weights.shape[1] - 1)


def _is_on_cpu(values: Tensor) -> bool:
    return values.device.type == "cpu"


@dataclass(frozen=True, slots=True)
class SoftmaxNegatives:
    """Independent draws from the softmax of the model's scores of all labels.

    Attributes:
        score_all: Returns the current score of every label for each pair's document.
        num_draws: m, a pair.
    """

    score_all: Callable[[Pairs], Float[Tensor, "batch label"]]
    num_draws: int

    @torch.no_grad()
    def draw(self, pairs: Pairs, generator: torch.Generator) -> Negatives:
        """Draw m labels for each pair, with replacement."""
        scores = self.score_all(pairs)
        every = torch.arange(scores.shape[1], device=scores.device).unsqueeze(0)
        allowed = scores.masked_fill(pairs.is_excluded(every), -math.inf).log_softmax(dim=1)
        labels = draw_with_replacement(allowed.exp(), self.num_draws, generator)
        return Negatives(
            positives=pairs.labels,
            labels=labels,
            is_drawn=torch.ones_like(labels, dtype=torch.bool),
            log_q=allowed.gather(1, labels),
            log_q_positive=scores.log_softmax(dim=1).gather(1, pairs.labels.unsqueeze(1)),
        )
