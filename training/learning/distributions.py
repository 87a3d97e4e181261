"""Sampling distributions that are the same for every document (Rawat et al. 2021, section 2.2).

Uniform, uniform without replacement, frequency to a power, within the batch; and all labels, the
case without sampling. The cost of m draws does not depend on the number of labels, but for
subsets of more than half of them and for all.

Frequencies are drawn from by the alias method (Walker 1977): every label has one cell of equal
size, shared with at most one other label. A draw picks a cell, then one of its two labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64, Int64
from torch import Tensor

from longtail.models.errors import DataError
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.learning.sampling import Negatives, Pairs, draw_each, draw_shared, look_up


@dataclass(frozen=True, slots=True)
class AliasTable:
    """Cells of equal probability.

    Attributes:
        keep: Share of a cell that is its own label's.
        other: The label that has the rest of it.
    """

    keep: Float32[Tensor, label]
    other: Int64[Tensor, label]

    @classmethod
    def of(cls, probabilities: Float64[np.ndarray, label], device: str) -> AliasTable:
        """Build the table in O(L log L), without a loop over labels.

        Labels in need (below 1/L) and labels in plenty (above) are in two queues. A giver fills
        the next cell in need until it has no more than its own cell; what it then lacks itself the
        next giver fills. So who fills which cell follows from the running sums of need and plenty.

        Args:
            probabilities: Probabilities of all labels, not negative, not all 0; scaled to sum to 1.
            device: Where to draw.
        """
        cells = probabilities * (len(probabilities) / probabilities.sum())
        keep = np.minimum(cells, 1.0)
        other = np.arange(len(cells))
        givers = np.flatnonzero(cells > 1)
        takers = np.flatnonzero(cells <= 1)
        if len(givers) and len(takers):
            need, plenty = np.cumsum(1 - cells[takers]), np.cumsum(cells[givers] - 1)
            needed_before = np.append(0.0, need[:-1])  # the very sums: no gap, no overlap
            filled_by = np.searchsorted(plenty, needed_before, side="right")
            other[takers] = givers[np.minimum(filled_by, len(givers) - 1)]
            last_filled = np.minimum(np.searchsorted(need, plenty), len(takers) - 1)
            keep[givers] = 1 - np.maximum(0, need[last_filled] - plenty)
            other[givers[:-1]] = givers[1:]
        return cls(
            keep=torch.from_numpy(keep.astype(np.float32)).to(device),
            other=torch.from_numpy(other.astype(np.int64)).to(device),
        )

    def sample(self, num_draws: int, generator: torch.Generator) -> Int64[Tensor, draw]:
        """Draw independent labels, with replacement."""
        device = self.keep.device
        cell = torch.randint(len(self.keep), (num_draws,), generator=generator, device=device)
        place = torch.rand(num_draws, generator=generator, device=device)
        # index_select: on a CPU four times as fast as plain indexing.
        is_own = place < self.keep.index_select(0, cell)
        return torch.where(is_own, cell, self.other.index_select(0, cell))


@dataclass(frozen=True, slots=True)
class Uniform:
    """Independent draws, every label as likely as any other.

    Attributes:
        num_labels: L.
        num_draws: m, a pair.
    """

    num_labels: int
    num_draws: int

    def draw(self, pairs: Pairs, generator: torch.Generator) -> Negatives:
        """Draw m labels for each pair, with replacement."""

        def sample(rows: Int64[Tensor, draw]) -> Int64[Tensor, draw]:
            return torch.randint(
                self.num_labels, rows.shape, generator=generator, device=rows.device
            )

        return draw_each(pairs, self.num_draws, sample, self.log_q)

    def log_q(self, labels: Int64[Tensor, "batch k"]) -> Float[Tensor, "batch k"]:
        """Return -log L."""
        return _uniform_log_q(self.num_labels, labels)


@dataclass(frozen=True, slots=True)
class UniformSubset:
    """A subset of the labels, all of its size as likely: uniform draws without replacement.

    What stochastic negative mining draws (Reddi et al. 2019, Algorithm 1, line 1). log q is that of
    one draw, so that m q is the probability that a label is in the subset.

    Attributes:
        num_labels: L.
        num_draws: m, the size of the subset, at most L.
    """

    num_labels: int
    num_draws: int

    def draw(self, pairs: Pairs, generator: torch.Generator) -> Negatives:
        """Draw a subset for each pair."""
        num_excluded = int((pairs.excluded != NO_LABEL).sum(dim=1).max())
        if self.num_draws > self.num_labels - num_excluded:
            raise DataError(
                f"negatives: expected {self.num_draws} different labels, but a document excludes "
                f"{num_excluded} of {self.num_labels}; lower m"
            )
        # Few more draws are needed than labels while at least half of all draws are good.
        if 2 * (self.num_draws + num_excluded) > self.num_labels:
            labels = self._first_of_shuffled(pairs, generator)
        else:
            num_tried = _num_draws_until_distinct(self.num_labels, num_excluded, self.num_draws)
            labels = self._first_distinct(pairs.excluded, num_tried, generator)
        log_q = -(self.num_labels - (pairs.excluded != NO_LABEL).sum(dim=1, keepdim=True)).log()
        return Negatives(
            labels=labels,
            is_drawn=torch.ones_like(labels, dtype=torch.bool),
            log_q=log_q.expand(labels.shape),
            positives=pairs.labels,
            log_q_positive=self.log_q(pairs.labels.unsqueeze(1)),
        )

    def _first_of_shuffled(
        self, pairs: Pairs, generator: torch.Generator
    ) -> Int64[Tensor, "batch sampled"]:
        device = pairs.labels.device
        shape = (len(pairs.labels), self.num_labels)
        every = torch.arange(self.num_labels, device=device).unsqueeze(0)
        key = torch.rand(shape, generator=generator, device=device)
        key = key.masked_fill(pairs.is_excluded(every), 2.0)  # after all others
        return key.argsort(dim=1)[:, : self.num_draws]

    def _first_distinct(
        self, excluded: Int64[Tensor, "batch excluded"], num_tried: int, generator: torch.Generator
    ) -> Int64[Tensor, "batch sampled"]:
        """Draw with replacement, and keep each row's first m labels without repeats.

        A row that has fewer is drawn again. Whether it has does not depend on which labels
        they are, so subsets stay equally likely.
        """
        drawn = torch.randint(
            self.num_labels, (len(excluded), num_tried), generator=generator, device=excluded.device
        )
        is_good = ~_is_repeat(torch.cat([excluded, drawn], dim=1))[:, excluded.shape[1] :]
        number = is_good.cumsum(dim=1)
        is_full = number[:, -1:] >= self.num_draws
        is_kept = is_good & (number <= self.num_draws) & is_full
        labels = drawn.masked_select(is_kept).view(-1, self.num_draws)
        if bool(is_full.all()):
            return labels
        rows = is_full.squeeze(1)
        every = drawn.new_empty(len(drawn), self.num_draws)
        every[rows] = labels
        every[~rows] = self._first_distinct(excluded[~rows], num_tried, generator)
        return every

    def log_q(self, labels: Int64[Tensor, "batch k"]) -> Float[Tensor, "batch k"]:
        """Return -log L."""
        return _uniform_log_q(self.num_labels, labels)


@dataclass(frozen=True, slots=True)
class Frequency:
    """Independent draws, each label as likely as a power of its training frequency.

    Attributes:
        table: Draws.
        log_probabilities: log q of every label; -inf for those without training documents, unless
            the power is 0.
        num_draws: m, a pair.
    """

    table: AliasTable
    log_probabilities: Float32[Tensor, label]
    num_draws: int

    @classmethod
    def of(
        cls, counts: Int64[np.ndarray, label], exponent: float, num_draws: int, device: str
    ) -> Frequency:
        """Return q proportional to frequency^exponent.

        Args:
            counts: Training documents of each label, not all 0.
            exponent: 0 is uniform, 1 the training distribution pi, between them a compromise.
            num_draws: m, a pair.
            device: Where to draw.
        """
        log_q = log_frequencies(counts, exponent)
        table = AliasTable.of(np.exp(log_q), device)
        return cls(table, torch.from_numpy(log_q.astype(np.float32)).to(device), num_draws)

    def draw(self, pairs: Pairs, generator: torch.Generator) -> Negatives:
        """Draw m labels for each pair, with replacement."""
        return draw_each(
            pairs,
            self.num_draws,
            lambda rows: self.table.sample(len(rows), generator),
            self.log_q,
        )

    def log_q(self, labels: Int64[Tensor, "batch k"]) -> Float[Tensor, "batch k"]:
        """Return the tabled logarithms; -inf for labels that are never drawn."""
        return look_up(self.log_probabilities, labels)


@dataclass(frozen=True, slots=True)
class Shared:
    """One draw for all pairs of a batch: what a dual encoder can afford to encode.

    Attributes:
        base: Where the labels come from; it must not depend on the document.
    """

    base: Uniform | UniformSubset | Frequency

    def draw(self, pairs: Pairs, generator: torch.Generator) -> Negatives:
        """Draw m labels; each pair leaves out its excluded labels."""
        anyone = Pairs(pairs.documents[:1], pairs.labels[:1], pairs.excluded[:1, :0])
        labels = self.base.draw(anyone, generator).labels
        return draw_shared(pairs, labels, self.base.log_q)


@dataclass(frozen=True, slots=True)
class WithinBatch:
    """The positives of the other pairs of the batch: draws from the training distribution pi.

    So m is the number of pairs less one, and nothing is random. The pairs of a batch must be drawn
    independently for q to be pi.

    Attributes:
        log_prior: log pi of every label, its share of all training pairs.
    """

    log_prior: Float32[Tensor, label]

    def draw(self, pairs: Pairs, _: torch.Generator) -> Negatives:
        """Return the labels of the batch, each pair's own place left empty."""
        shared = pairs.labels.unsqueeze(0)
        negatives = draw_shared(pairs, shared, lambda labels: look_up(self.log_prior, labels))
        negatives.is_drawn.fill_diagonal_(fill_value=False)
        return negatives


@dataclass(frozen=True, slots=True)
class AllLabels:
    """Every label once: no sampling, for the losses that see all labels.

    It is the uniform subset of size L, so m q = 1 and a target margin rho gets the weight rho.

    Attributes:
        num_labels: L.
    """

    num_labels: int

    def draw(self, pairs: Pairs, _: torch.Generator) -> Negatives:
        """Return all labels; each pair leaves out its excluded labels."""
        labels = torch.arange(self.num_labels, device=pairs.labels.device).unsqueeze(0)
        return draw_shared(pairs, labels, lambda labels: _uniform_log_q(self.num_labels, labels))


def log_frequencies(
    counts: Int64[np.ndarray, label], exponent: float = 1.0
) -> Float64[np.ndarray, label]:
    """Return the logarithm of frequency^exponent, normalised over the labels: log pi for 1.

    Args:
        counts: Training documents of each label.
        exponent: At least 0; above, labels without training documents get -inf.
    """
    if not counts.any():
        raise DataError("label frequencies: no label has a training document")
    weights = counts.astype(np.float64) ** exponent
    with np.errstate(divide="ignore"):
        log_shares: Float64[np.ndarray, label] = np.log(weights / weights.sum())
    return log_shares


def _uniform_log_q(num_labels: int, labels: Int64[Tensor, "#batch k"]) -> Float[Tensor, "#batch k"]:
    return torch.full(labels.shape, -math.log(num_labels), device=labels.device)


def _num_draws_until_distinct(num_labels: int, num_excluded: int, expected: int) -> int:
    """Return how many draws nearly always hold the labels wanted, no two alike, none excluded."""
    left = num_labels - num_excluded
    mean = num_labels * math.log(left / (left - expected))
    return math.ceil(mean + 4 * math.sqrt(mean - expected) + 4)


def _is_repeat(labels: Int64[Tensor, "batch sampled"]) -> Bool[Tensor, "batch sampled"]:
    """Return which places hold a label that an earlier place of the row holds.

    Label and place are packed into one number, because numbers alone are sorted many times as fast
    as with their places.
    """
    width = labels.shape[1]
    num_bits = (width - 1).bit_length()
    keys = (labels << num_bits) | torch.arange(width, device=labels.device)
    ordered = _sorted_rows(keys)
    same = (ordered >> num_bits).diff(dim=1) == 0
    places = ordered[:, 1:] & (2**num_bits - 1)
    return torch.zeros_like(labels, dtype=torch.bool).scatter_(1, places, same)


def _sorted_rows(keys: Int64[Tensor, "batch key"]) -> Int64[Tensor, "batch key"]:
    """Return each row in rising order; on a CPU by NumPy, thirty times as fast as PyTorch."""
    if keys.device.type == "cpu":
        return torch.from_numpy(np.sort(keys.numpy(), axis=1))
    return keys.sort(dim=1).values
