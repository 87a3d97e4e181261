"""Sampling distributions that differ by document: hard negatives, a label tree, current scores.

The softmax of the current scores is drawn from exactly, at the cost of scoring all labels; or over
clusters of labels with alike vectors, at O(sqrt(L)) a pair with exact log q of what is drawn
(Rawat et al. 2021, section 2.2).

On a GPU, PyTorch's sums along a row are not deterministic, so `cumsum` of floating-point numbers,
and `multinomial`, which uses it, raise when training asks for reproducible results. Sums of
integers are exact in any order: there the weights are rounded to multiples of 2^-52.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
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
        hard: Of every document of the corpus, padded with `NO_LABEL`, as of `hard_negatives`.
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
        labels: Of each pair's document, `NO_LABEL` at the end.
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
        num_draws: Of each row.
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


LabelWeights = Callable[[], tuple[Float[Tensor, "label dim"], Float[Tensor, "label"]]]
"""Returns the vectors and biases of all labels as they are now."""

_POWER_ITERATIONS = 5
"""Enough for a direction in which a group of labels is wide; the widest is not needed."""


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


@dataclass(frozen=True, slots=True)
class ClusterNegatives:
    """Draws a cluster by its mean score, then one of its labels uniformly.

    q(y | x) = p(c | x) / n_c for the n_c labels y of cluster c, with p(c | x) proportional to
    n_c exp(<x, mean vector> + mean bias). By Jensen's inequality that is at most the cluster's
    part of the softmax, and equal where its labels score alike.

    Attributes:
        members: Labels of each cluster, padded with `NO_LABEL`.
        sizes: How many it has, at least 1; they differ by at most 1.
        cluster_of: The cluster of each label.
        means: Mean vector of the labels of each cluster.
        biases: Mean bias of them.
        num_draws: m, a pair.
        uniform_share: Share of the draws that are uniform over the labels: without any, the labels
            that may not be drawn for a pair can come to have almost all of q.
    """

    members: Int64[Tensor, "cluster size"]
    sizes: Int64[Tensor, cluster]
    cluster_of: Int64[Tensor, label]
    means: Float32[Tensor, "cluster dim"]
    biases: Float32[Tensor, cluster]
    num_draws: int
    uniform_share: float = 0.0

    @classmethod
    def of(
        cls,
        vectors: Float32[Tensor, "label dim"],
        biases: Float32[Tensor, label],
        num_draws: int,
        rng: np.random.Generator,
    ) -> ClusterNegatives:
        """Cluster the labels by their vectors: about sqrt(L) clusters of about sqrt(L) labels.

        Groups are halved, again and again, at the median along a direction in which they are wide.

        Args:
            vectors: Of the labels; a document's score of a label is <x, vector> + bias.
            biases: Of the labels.
            num_draws: m, a pair.
            rng: Starts the search for the directions.
        """
        depth = round(math.log2(len(vectors)) / 2)
        groups = _halved(vectors.detach().cpu().numpy(), depth, rng)
        members = torch.full((len(groups), max(map(len, groups))), NO_LABEL)
        cluster_of = torch.empty(len(vectors), dtype=torch.int64)
        for cluster, group in enumerate(groups):
            labels = torch.from_numpy(group)
            members[cluster, : len(group)] = labels
            cluster_of[labels] = cluster
        device = vectors.device
        sizes = (members != NO_LABEL).sum(dim=1)
        empty = torch.zeros((len(groups), vectors.shape[1]), device=device)
        clusters = cls(
            members=members.to(device),
            sizes=sizes.to(device),
            cluster_of=cluster_of.to(device),
            means=empty,
            biases=empty[:, 0],
            num_draws=num_draws,
        )
        return clusters.refreshed(vectors, biases)

    @torch.no_grad()
    def refreshed(
        self, vectors: Float32[Tensor, "label dim"], biases: Float32[Tensor, label]
    ) -> ClusterNegatives:
        """Return the same clusters with the means of the labels as they are now, in O(L dim)."""
        columns = torch.cat([vectors, biases.unsqueeze(1)], dim=1)
        sums = columns.new_zeros(len(self.sizes), columns.shape[1])
        means = sums.index_add(0, self.cluster_of, columns) / self.sizes.unsqueeze(1)
        return replace(self, means=means[:, :-1].contiguous(), biases=means[:, -1].contiguous())

    def draw(self, pairs: Pairs, generator: torch.Generator) -> Negatives:
        """Draw m labels for each pair, with replacement."""
        log_clusters = self._log_clusters(pairs)
        num_clusters = len(self.sizes)
        # One rising sequence: row r has its cumulative probabilities between r and r + 1.
        offsets = torch.arange(len(log_clusters), device=log_clusters.device).unsqueeze(1)
        bounds = (cumulative_sums(log_clusters.double().exp()) + offsets).flatten()

        def sample(rows: Int64[Tensor, draw]) -> Int64[Tensor, draw]:
            which, place = torch.rand(
                2, len(rows), generator=generator, device=rows.device, dtype=torch.float64
            )
            found = torch.searchsorted(bounds, rows + which, right=True) - rows * num_clusters
            cluster = found.clamp(0, num_clusters - 1)  # the sums are 1 but for rounding
            return self.members[cluster, (place * self.sizes[cluster]).long()]

        def log_q(labels: Int64[Tensor, "batch k"]) -> Float[Tensor, "batch k"]:
            return self._log_q(log_clusters, labels)

        return draw_each(pairs, self.num_draws, sample, log_q)

    def log_q(self, pairs: Pairs, labels: Int64[Tensor, "#batch k"]) -> Float[Tensor, "batch k"]:
        """Return log p(c | x) - log n_c for the cluster c of each label."""
        return self._log_q(self._log_clusters(pairs), labels)

    def _log_clusters(self, pairs: Pairs) -> Float[Tensor, "batch cluster"]:
        means = pairs.document_vectors() @ self.means.T + self.biases
        followed = (means + self.sizes.log()).log_softmax(dim=1)
        if not self.uniform_share:
            return followed
        anywhere = (self.uniform_share * self.sizes / len(self.cluster_of)).log()
        return torch.logaddexp(followed + math.log1p(-self.uniform_share), anywhere)

    def _log_q(
        self, log_clusters: Float[Tensor, "batch cluster"], labels: Int64[Tensor, "#batch k"]
    ) -> Float[Tensor, "batch k"]:
        cluster = self.cluster_of[labels].expand(len(log_clusters), -1)
        return log_clusters.gather(1, cluster) - self.sizes[cluster].log()


@dataclass(frozen=True, slots=True)
class RefreshedClusters:
    """Draws by clusters whose means follow a model in training, in O(L dim) a draw.

    Attributes:
        clusters: Which label is in which.
        label_weights: Of the model.
    """

    clusters: ClusterNegatives
    label_weights: LabelWeights

    @torch.no_grad()
    def draw(self, pairs: Pairs, generator: torch.Generator) -> Negatives:
        """Draw labels for each pair, with replacement."""
        return self.clusters.refreshed(*self.label_weights()).draw(pairs, generator)


def _halved(
    vectors: Float32[np.ndarray, "label dim"], depth: int, rng: np.random.Generator
) -> list[Int64[np.ndarray, member]]:
    """Return 2^depth groups of labels, halving each at the median of a wide direction."""
    groups = [np.arange(len(vectors), dtype=np.int64)]
    for _ in range(depth):
        groups = [half for group in groups for half in _two_halves(group, vectors[group], rng)]
    return groups


def _two_halves(
    group: Int64[np.ndarray, member],
    vectors: Float32[np.ndarray, "member dim"],
    rng: np.random.Generator,
) -> list[Int64[np.ndarray, half]]:
    centred = vectors - vectors.mean(axis=0)
    direction = rng.standard_normal(vectors.shape[1], dtype=np.float32)
    for _ in range(_POWER_ITERATIONS):
        direction = centred.T @ (centred @ direction)
        direction /= max(float(np.linalg.norm(direction)), np.finfo(np.float32).tiny)
    order = np.argsort(centred @ direction, kind="stable")
    return np.array_split(group[order], 2)
