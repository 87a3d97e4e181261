"""Model-based negatives: q follows the softmax of the current scores.

Exactly, at the cost of scoring all labels; or over clusters of labels with alike vectors, at
O(sqrt(L)) a pair with exact log q of what is drawn (Rawat et al. 2021, section 2.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.learning.drawing import cumulative_sums, draw_with_replacement
from longtail.training.learning.sampling import Negatives, Pairs, draw_each

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
