"""Sampling distributions that differ by document: hard negatives of a ranker, and a label tree.

Those that follow the scores of the model in training are in `training.model_sampling`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from models.errors import DataError
from models.ranking import NO_LABEL
from training.sampling import Negatives, Pairs, draw_each, is_listed


@dataclass(frozen=True, slots=True)
class HardNegatives:
    """A ranker's best wrong labels of the document, mixed with uniform draws.

    q = share / h for the h labels of the document's list, plus (1 - share) / L for all labels.
    A document without a list gets uniform draws alone.

    Attributes:
        hard: Of every document of the corpus, padded with `NO_LABEL`, as of `hard_negatives`.
        share: Probability that a draw comes from the list, 0 to 1; with 1, labels outside it are
            never drawn.
        num_labels: L.
        num_draws: m, a pair.

    Raises:
        DataError: Share is 1 and a document has no hard negative.
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
        lists = self.hard[pairs.documents]  # (batch, hard), `NO_LABEL` at the end
        sizes, shares = self._sizes_and_shares(lists)

        def sample(rows: Int64[Tensor, "draw"]) -> Int64[Tensor, "draw"]:
            device = rows.device
            coin, place = torch.rand(2, len(rows), generator=generator, device=device)
            place = (place * sizes.index_select(0, rows)).long()
            listed = lists.flatten().index_select(0, rows * lists.shape[1] + place)
            anywhere = torch.randint(
                self.num_labels, rows.shape, generator=generator, device=device
            )
            return torch.where(coin < shares.index_select(0, rows), listed, anywhere)

        return draw_each(pairs, self.num_draws, sample, lambda labels: self.log_q(pairs, labels))

    def log_q(self, pairs: Pairs, labels: Int64[Tensor, "#batch k"]) -> Float[Tensor, "batch k"]:
        """Return the logarithm of the mixture; -inf for what is never drawn."""
        lists = self.hard[pairs.documents]
        sizes, shares = self._sizes_and_shares(lists)
        anywhere = ((1 - shares) / self.num_labels).unsqueeze(1)
        in_list = anywhere + (shares / sizes).unsqueeze(1)
        return torch.where(is_listed(labels, lists), in_list.log(), anywhere.log())

    def _sizes_and_shares(
        self, lists: Int64[Tensor, "batch hard"]
    ) -> tuple[Int64[Tensor, "batch"], Float[Tensor, "batch"]]:
        """Return how long each list is, at least 1, and how often it is drawn from."""
        sizes = (lists != NO_LABEL).sum(dim=1)
        return sizes.clamp(min=1), self.share * (sizes > 0).float()


@runtime_checkable  # the test run checks annotations by isinstance
class TreeSampler(Protocol):
    """The slot for adversarial negatives: what `models.tree.LabelTree` offers."""

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

        def sample(rows: Int64[Tensor, "draw"]) -> Int64[Tensor, "draw"]:
            return self.tree.sample(features[rows], 1, generator).squeeze(1)

        return draw_each(
            pairs, self.num_draws, sample, lambda labels: self.tree.log_prob(features, labels)
        )
