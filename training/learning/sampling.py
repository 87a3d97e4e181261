"""Negatives of a training step: the pairs they are drawn for, the draws, and their weights.

The multi-label reduction makes t (document, label) pairs of a document with t labels; Rawat et al.
2021, section 5.2, and Reddi et al. 2019, section 5, draw one of them a document instead. The matrix
of labels already is the list of pairs, so pairs are made as they are needed.

A *distribution* q draws labels for a batch of pairs and knows log q of every label it drew (Rawat
et al. 2021, section 2.2). Each pair names the labels that may not be drawn: none; its positive
alone, as in the paper's appendix; or all labels of its document. There q is 0, and the rest is
renormalised. `longtail.training.learning.distributions` has the distributions.

A *weight* w of a drawn label is a logarithm (Table 1 and Eq. 15-16). With w, a sampled loss stands
for one over all labels with the margins rho = m q w (Lemmas 1 and 2). `TargetMargin` goes the other
way: it names rho, and gives w = rho / (m q) whatever q is (Eq. 15). Its margins are those of Eq. 6;
importance weighting is the margin 1, the paper's "tail" weighting is the logit adjustment.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64
from scipy.sparse import csr_array
from torch import Tensor

from longtail.models.errors import DataError
from longtail.models.ranking.top_k import NO_LABEL

_MAX_EXCLUDED = 0.99
"""A pair whose excluded labels have more of q than this is refused: a draw would be refused again
and again, a hundred times and more for each label found."""

_MAX_TRIED = 64
"""Draws at once in the place of an excluded label: few rounds, also where most of q is excluded."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """A batch of (document, positive label) pairs.

    Attributes:
        documents: Row of each pair's document in the corpus.
        labels: The positive label y of each pair.
        excluded: Labels that may not be drawn for it, distinct, padded with `NO_LABEL`.
        vectors: What the model scores each document with; only a q that depends on the document
            reads it.
    """

    documents: Int64[Tensor, batch]
    labels: Int64[Tensor, batch]
    excluded: Int64[Tensor, "batch excluded"]
    vectors: Float[Tensor, "batch dim"] | None = None

    def is_excluded(self, labels: Int64[Tensor, "#batch k"]) -> Bool[Tensor, "batch k"]:
        """Return which labels may not be drawn for which pair."""
        return is_listed(labels, self.excluded)

    def document_vectors(self) -> Float[Tensor, "batch dim"]:
        """Return the vectors, without their gradient."""
        if self.vectors is None:
            raise DataError(
                "negatives: this distribution depends on the document, but the pairs come without "
                "vectors; pass those that the model scores with as Pairs(..., vectors=...)"
            )
        return self.vectors.detach()


@dataclass(frozen=True, slots=True)
class Negatives:
    """What was drawn for a batch of pairs.

    Attributes:
        positives: The positive label of each pair.
        labels: The drawn labels; one row where all pairs share them.
        is_drawn: False where a place is empty for a pair: a shared label it excludes.
        log_q: Natural logarithm of q of each label, given the pair and that no excluded label is
            drawn; meaningless where `is_drawn` is False.
        log_q_positive: log q of each pair's positive, before anything is excluded.
    """

    positives: Int64[Tensor, batch]
    labels: Int64[Tensor, "#batch sampled"]
    is_drawn: Bool[Tensor, "batch sampled"]
    log_q: Float[Tensor, "batch sampled"]
    log_q_positive: Float[Tensor, "batch 1"]

    def log_count(self) -> Float[Tensor, "batch 1"]:
        """Return log m, where m is how many negatives a pair has; 0 if it has none."""
        return self.is_drawn.sum(dim=1, keepdim=True).clamp(min=1).to(self.log_q).log()


@runtime_checkable  # the test run checks annotations by isinstance
class Distribution(Protocol):
    """A sampling distribution q over labels, with its number of draws."""

    def draw(self, pairs: Pairs, generator: torch.Generator, /) -> Negatives:
        """Draw negatives of each pair; on the device of the pairs, as the generator must be."""
        ...


def is_listed(
    labels: Int64[Tensor, "#batch k"], lists: Int64[Tensor, "batch listed"]
) -> Bool[Tensor, "batch k"]:
    """Return which labels are in the list of which row."""
    if labels.shape[1] < lists.shape[1]:
        return (labels.unsqueeze(2) == lists.unsqueeze(1)).any(dim=2)
    is_hit = torch.zeros((len(lists), labels.shape[1]), dtype=torch.bool, device=labels.device)
    for column in lists.unbind(1):  # a column at a time: lists are short, `k` may be large
        is_hit |= labels == column.unsqueeze(1)
    return is_hit


def look_up(
    values: Float[Tensor, label], labels: Int64[Tensor, "batch k"]
) -> Float[Tensor, "batch k"]:
    """Return values of labels; on a CPU, four times as fast as plain indexing."""
    return values.index_select(0, labels.flatten()).view(labels.shape)


def step_generator(rng: np.random.Generator, device: str) -> torch.Generator:
    """Return the generator of a step's draws.

    Args:
        rng: Random numbers of the step, seeded by run, stage and step number; advanced by one
            number.
        device: Where to draw; the same seed draws other labels on another kind of device.
    """
    return torch.Generator(device).manual_seed(int(rng.integers(2**63)))


def draw_each(
    pairs: Pairs,
    num_draws: int,
    sample: Callable[[Int64[Tensor, draw]], Int64[Tensor, draw]],
    log_q: Callable[[Int64[Tensor, "batch k"]], Float[Tensor, "batch k"]],
) -> Negatives:
    """Draw independent negatives for every pair; an excluded label is drawn again.

    Args:
        pairs: What to draw for.
        num_draws: m, negatives a pair, with replacement.
        sample: Draws one label for each row of the pairs that it is given.
        log_q: log q of labels, before anything is excluded.
    """
    log_rest, log_q_positive = _log_q_of_pairs(pairs, log_q)
    rows = torch.arange(len(pairs.labels), device=pairs.labels.device)
    labels = sample(rows.repeat_interleave(num_draws)).view(-1, num_draws)  # (batch, sampled)
    again = pairs.is_excluded(labels).nonzero()
    num_tried = 1
    while len(again):
        row, place = again.unbind(1)
        found = sample(row.repeat_interleave(num_tried)).view(-1, num_tried)
        is_good = ~is_listed(found, pairs.excluded[row])
        first = is_good.byte().argmax(dim=1, keepdim=True)
        labels[row, place] = found.gather(1, first).squeeze(1)
        again = again[~is_good.any(dim=1)]
        num_tried = min(2 * num_tried, _MAX_TRIED)
    return Negatives(
        positives=pairs.labels,
        labels=labels,
        is_drawn=torch.ones_like(labels, dtype=torch.bool),
        log_q=log_q(labels) - log_rest,
        log_q_positive=log_q_positive,
    )


def draw_shared(
    pairs: Pairs,
    labels: Int64[Tensor, "1 sampled"],
    log_q: Callable[[Int64[Tensor, "#batch k"]], Float[Tensor, "#batch k"]],
) -> Negatives:
    """Return labels drawn once for all pairs; each pair leaves out its excluded labels.

    Given how many a pair keeps, these are independent draws from q without its excluded labels, so
    weights that count them are as exact as with draws of its own; but a pair may keep none.

    Args:
        pairs: What they are drawn for.
        labels: Drawn from q.
        log_q: log q of labels, before anything is excluded.
    """
    log_rest, log_q_positive = _log_q_of_pairs(pairs, log_q)
    return Negatives(
        positives=pairs.labels,
        labels=labels,
        is_drawn=~pairs.is_excluded(labels),
        log_q=log_q(labels) - log_rest,
        log_q_positive=log_q_positive,
    )


def _log_q_of_pairs(
    pairs: Pairs, log_q: Callable[[Int64[Tensor, "batch k"]], Float[Tensor, "batch k"]]
) -> tuple[Float[Tensor, "batch 1"], Float[Tensor, "batch 1"]]:
    labels = torch.cat([pairs.labels.unsqueeze(1), pairs.excluded.clamp(min=0)], dim=1)
    log_q_positive, log_q_excluded = log_q(labels).tensor_split([1], dim=1)
    q = log_q_excluded.exp() * (pairs.excluded != NO_LABEL)
    excluded = q.sum(dim=1, keepdim=True)
    if bool((excluded > _MAX_EXCLUDED).any()):
        row = int(excluded.argmax())
        raise DataError(
            f"negatives of document {int(pairs.documents[row])}: the labels that may not be drawn "
            f"for it have {float(excluded[row]):.4f} of q, expected at most {_MAX_EXCLUDED}; take "
            "a distribution with a wider support, or exclude fewer labels"
        )
    return torch.log1p(-excluded), log_q_positive


Exclude = Literal["none", "positive", "document"]
"""Labels that may not be negatives of a pair: none, its own, or all of its document."""


def pairs_at(
    truth: Float32[csr_array, "document label"], numbers: Int64[np.ndarray, batch]
) -> tuple[Int64[np.ndarray, batch], Int64[np.ndarray, batch]]:
    """Return documents and labels of numbered pairs.

    Args:
        truth: Labels of the documents.
        numbers: From 0, document by document, below the number of stored entries.
    """
    documents = np.searchsorted(truth.indptr, numbers, side="right") - 1
    return documents.astype(np.int64), truth.indices[numbers].astype(np.int64)


def pair_indices(
    truth: Float32[csr_array, "document label"], documents: Int64[np.ndarray, batch]
) -> Int64[np.ndarray, pair]:
    """Return the numbers, for `pairs_at`, of all pairs of the documents, in their order."""
    starts = truth.indptr[documents].astype(np.int64)
    counts = truth.indptr[documents + 1] - starts
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum())


def label_counts(truth: Float32[csr_array, "document label"]) -> Int64[np.ndarray, label]:
    """Return how many documents carry each label."""
    return np.bincount(truth.indices, minlength=truth.shape[1]).astype(np.int64)


def make_pairs(
    truth: Float32[csr_array, "document label"],
    documents: Int64[np.ndarray, batch],
    labels: Int64[np.ndarray, batch],
    exclude: Exclude,
    device: str,
) -> Pairs:
    """Return a batch of pairs with the labels that may not be their negatives.

    Args:
        truth: Labels of all documents.
        documents: Row of each pair's document.
        labels: Its positive label.
        exclude: The papers' reduction excludes "positive" alone (q_y = 0), so that other labels of
            the document may be its negatives; "document" excludes those too.
        device: Where to put them.
    """
    if exclude == "none":
        excluded = np.empty((len(labels), 0), dtype=np.int64)
    elif exclude == "positive":
        excluded = labels[:, np.newaxis]
    else:
        excluded = _padded_rows(truth, documents)
    arrays: list[Tensor] = [
        torch.from_numpy(array).to(device) for array in (documents, labels, excluded)
    ]
    return Pairs(*arrays)


def _padded_rows(
    truth: Float32[csr_array, "document label"], documents: Int64[np.ndarray, batch]
) -> Int64[np.ndarray, "batch most"]:
    counts = np.diff(truth.indptr)[documents]
    rows = np.full((len(documents), int(counts.max(initial=0))), NO_LABEL, dtype=np.int64)
    is_filled = np.arange(rows.shape[1]) < counts[:, np.newaxis]
    rows[is_filled] = truth.indices[pair_indices(truth, documents)]
    return rows


Weight = Callable[[Negatives], Float[Tensor, "batch sampled"]]
"""Turns the draws of a batch of pairs into log w; -inf where nothing was drawn."""

Margin = Callable[[Tensor, Tensor], Tensor]
"""Turns log pi of positives (batch, 1) and of negatives (batch, sampled) into log rho."""


def unweighted(negatives: Negatives) -> Float[Tensor, "#batch sampled"]:
    """Return log of 1, for losses that weigh by rank."""
    return torch.where(negatives.is_drawn, 0.0, -math.inf)


def constant(negatives: Negatives) -> Float[Tensor, "batch sampled"]:
    """Return log of 1 / m, so that rho = q."""
    return _where_drawn(negatives, -negatives.log_count())


def importance(negatives: Negatives) -> Float[Tensor, "batch sampled"]:
    """Return log of 1 / (m q), so that rho = 1: no bias from sampling."""
    return _where_drawn(negatives, -negatives.log_count() - negatives.log_q)


def relative(negatives: Negatives) -> Float[Tensor, "batch sampled"]:
    """Return log of q_y / q_y', so that rho = m q_y.

    q_y is that of the positive before it is excluded, where it would be 0; q_y' is that of the
    draw. So the implicit losses of the paper's Table 2 hold as printed where every pair has draws
    of its own. Draws that a batch shares, and those within it, leave out what a pair excludes
    without drawing again, and this weight does not divide by how many are left: of m draws m (1 -
    q_y) are then expected, so that rho = m (1 - q_y) q_y where the positive alone is excluded. That
    is 0.56 of m q_y for a label with q = 0.44, and the same for all labels that are seldom drawn.
    """
    return _where_drawn(negatives, negatives.log_q_positive - negatives.log_q)


@dataclass(frozen=True, slots=True)
class TargetMargin:
    """Weights for a target margin: rho / (m q) (Eq. 15).

    Attributes:
        log_prior: log pi of every label, its share of all training pairs; -inf for labels without.
        margin: Log rho from the priors.
    """

    log_prior: Float32[Tensor, label]
    margin: Margin

    def __call__(self, negatives: Negatives) -> Float[Tensor, "batch sampled"]:
        """Return log of rho / (m q)."""
        positive = look_up(self.log_prior, negatives.positives.unsqueeze(1))
        log_rho = self.margin(positive, look_up(self.log_prior, negatives.labels))
        return log_rho + importance(negatives)


def logit_adjusted(
    log_positive: Float[Tensor, "batch 1"], log_negative: Float[Tensor, "#batch sampled"]
) -> Float[Tensor, "batch sampled"]:
    """Return log of rho = pi_y' / pi_y (Menon et al. 2020): the "tail" weighting, Eq. 16."""
    return log_negative - log_positive


def equalised(
    log_positive: Float[Tensor, "batch 1"], log_negative: Float[Tensor, "#batch sampled"]
) -> Float[Tensor, "batch sampled"]:
    """Return log of rho = pi_y' (Tan et al. 2020 with F the identity, as in Table 2)."""
    return log_negative.expand(len(log_positive), -1)


def adaptive(
    log_positive: Float[Tensor, "batch 1"], log_negative: Float[Tensor, "#batch sampled"]
) -> Float[Tensor, "batch sampled"]:
    """Return log of rho = pi_y^(-1/4) (Cao et al. 2019; the paper leaves its factor open)."""
    return (-0.25 * log_positive).expand(-1, log_negative.shape[1])


def _where_drawn(
    negatives: Negatives,
    log_weights: Float[
        Tensor,
        (
            batch  # sampled
        ),
    ],
) -> Float[Tensor, "batch sampled"]:
    return torch.where(negatives.is_drawn, log_weights, -math.inf)
