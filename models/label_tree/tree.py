"""The label tree of Bamler & Mandt (2020, section 3): p_n(y|x) at a cost of log C a label.

A balanced binary tree with one leaf a label. At each inner node a document goes right with
probability sigma(w·x + b), x being the document vector's first principal components; p_n(y|x) is
the product along the path to the leaf of y (Eq. 7). Here are log p_n and sampling;
`longtail.models.label_tree.corrected_top_k` yields labels in falling order of p_n, and
`longtail.training.label_tree.fit` fits the tree.

Nodes are numbered as in a heap: the root is 0, the children of node i are 2i + 1 and 2i + 2, and
the leaves follow the inner nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor
from torch.nn.functional import logsigmoid

from longtail.models.errors import BundleCorruptError, DataError
from longtail.models.label_tree.kernels import (
    Nodes,
    draw_leaves,
    log_prob_of_all_leaves,
    log_prob_of_leaves,
    quick_log_prob_of_leaves,
)
from longtail.models.matrices import ArrayRule, check_arrays
from longtail.models.ranking.top_k import NO_LABEL


def depth_of(num_labels: int) -> int:
    """Return the depth of a tree of C labels, ceil(log2 C); 0 for a single label."""
    return (num_labels - 1).bit_length()


def one_sided_biases(num_labels_below: Int64[np.ndarray, leaf]) -> Float32[np.ndarray, node]:
    """Return the biases that padding forces: +inf or -inf where one side holds only padding, or 0.

    Args:
        num_labels_below: For each leaf, from left to right, 1 if it has a label and 0 if not.
    """
    levels = []
    counts = num_labels_below
    while len(counts) > 1:
        left, right = counts[::2] > 0, counts[1::2] > 0
        forced = np.where(left & ~right, -np.inf, np.where(right & ~left, np.inf, 0.0))
        levels.append(forced.astype(np.float32))
        counts = counts[::2] + counts[1::2]
    return np.concatenate([*levels[::-1], np.empty(0, dtype=np.float32)])


ARRAYS = {
    "mean": ArrayRule(("float32",), 1),
    "components": ArrayRule(("float32",), 2),
    "weights": ArrayRule(("float32",), 2),
    "biases": ArrayRule(("float32",), 1, is_finite=False),
    "label_of_leaf": ArrayRule(("int64",), 1, least=NO_LABEL),
}


def problem_of(arrays: Mapping[str, np.ndarray]) -> str | None:
    """Return what of these arrays is no tree's, or None."""
    try:
        check_arrays(arrays, ARRAYS)
    except ValueError as error:
        return str(error)
    return _problem_of_shapes(arrays) or _problem_of_values(arrays)


def _problem_of_shapes(arrays: Mapping[str, np.ndarray]) -> str | None:
    num_leaves = len(arrays["label_of_leaf"])
    num_features, dim = arrays["components"].shape
    num_labels = int((arrays["label_of_leaf"] != NO_LABEL).sum())
    if not num_labels or num_leaves != 2 ** depth_of(num_labels):
        return (
            f"{num_leaves} leaves for {num_labels} labels, expected at least one and the smallest "
            "power of two that holds them"
        )
    if not num_features or not dim:
        return f"components has shape {(num_features, dim)}, expected one of each at least"
    expected = {
        "mean": (dim,),
        "weights": (num_leaves - 1, num_features),
        "biases": (num_leaves - 1,),
    }
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            return f"{name} has shape {arrays[name].shape}, expected {shape}"
    return None


def _problem_of_values(arrays: Mapping[str, np.ndarray]) -> str | None:
    label_of_leaf, biases = arrays["label_of_leaf"], arrays["biases"]
    is_label = label_of_leaf != NO_LABEL
    labels = np.sort(label_of_leaf[is_label])
    if not np.array_equal(labels, np.arange(len(labels))):
        return f"label_of_leaf does not hold each of {len(labels)} labels once"
    forced = one_sided_biases(is_label.astype(np.int64))
    found = np.where(np.isfinite(biases), 0.0, biases)
    if not np.array_equal(found, forced):
        return "biases are not infinite exactly where only padding lies on one side"
    return None


_MAX_PRODUCTS = 2**20  # float64 products held at a time: 8 MiB
_MAX_PRODUCTS_ON_GPU = 2**24  # 128 MiB
_DRAWS_AT_A_TIME = 2**20  # on a GPU


@dataclass(frozen=True, slots=True, eq=False)
class LabelTree:
    """A fitted tree, on one device.

    log p_n is computed in float64 from float32 features and weights, with additions in an order
    that does not depend on the batch, and rounded to float32 once: `log_prob`, `log_probs` and
    `corrected_top_k.py` give a label of a document the same number, to the bit, on one device.
    On a CPU compiled loops compute it, elsewhere PyTorch.

    Attributes:
        mean: Subtracted from document vectors before the projection.
        components: Principal components, divided by the scale of the features.
        weights: w of each inner node.
        biases: b of each inner node; +inf where only padding is below it on the left, -inf where
            only padding is on the right.
        label_of_leaf: The label of each leaf, from left to right; `NO_LABEL` for padding.
        leaf_of_label: Its inverse.
    """

    mean: Float32[Tensor, dim]
    components: Float32[Tensor, "k dim"]
    weights: Float32[Tensor, "node k"]
    biases: Float32[Tensor, node]
    label_of_leaf: Int64[Tensor, leaf]
    leaf_of_label: Int64[Tensor, label]

    @property
    def num_labels(self) -> int:
        """Number of labels C, padding not counted."""
        return len(self.leaf_of_label)

    @property
    def depth(self) -> int:
        """Decisions on the way to a leaf: ceil(log2 C)."""
        return depth_of(len(self.label_of_leaf))

    def to(self, device: torch.device | str) -> LabelTree:
        """Return the tree on this device."""
        return LabelTree(*(getattr(self, field.name).to(device) for field in fields(self)))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the state as plain arrays; `from_arrays` reads them."""
        return {name: getattr(self, name).cpu().numpy() for name in ARRAYS}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> LabelTree:
        """Return the tree of these arrays, on the CPU."""
        problem = problem_of(arrays)
        if problem:
            raise BundleCorruptError(f"label tree: {problem}; train again with 'longtail train'")
        label_of_leaf = arrays["label_of_leaf"]
        leaves = np.flatnonzero(label_of_leaf >= 0)
        leaf_of_label = np.empty(len(leaves), dtype=np.int64)
        leaf_of_label[label_of_leaf[leaves]] = leaves
        state = {name: torch.tensor(arrays[name]) for name in ARRAYS}
        return cls(**state, leaf_of_label=torch.from_numpy(leaf_of_label))

    def project(self, vectors: Float32[Tensor, "batch dim"]) -> Float32[Tensor, "batch k"]:
        """Return the features x of document vectors, which all the rest takes.

        A vector has the same features, to the bit, whatever batch it came in.
        """
        return project(vectors, self.mean, self.components)

    def log_prob(
        self, features: Float32[Tensor, "batch k"], labels: Int64[Tensor, "batch m"]
    ) -> Float32[Tensor, "batch m"]:
        """Return log p_n(y|x), in nats, of given labels; each costs O(k log C).

        Args:
            features: From `project`.
            labels: Label indices; any other index has probability zero, so -inf.
        """
        is_label = (labels >= 0) & (labels < self.num_labels)
        rows = torch.arange(len(features), device=labels.device).repeat_interleave(labels.shape[1])
        # Rising leaves of a document share most of their paths.
        leaves, order = self.leaf_of_label[torch.where(is_label, labels, 0)].sort(1)
        in_order = self._log_prob_of_leaves(features, rows, leaves.flatten()).float()
        found = torch.empty_like(in_order).view(labels.shape)
        found.scatter_(1, order, in_order.view(labels.shape))
        return found.masked_fill(~is_label, -math.inf)

    def log_likelihood(
        self,
        features: Float32[Tensor, "document k"],
        documents: Int64[Tensor, pair],
        labels: Int64[Tensor, pair],
        pair_weights: Float32[Tensor, pair],
    ) -> float:
        """Return the weighted sum of log p_n(y|x), in nats, over pairs of document and label.

        Eq. 7 of Bamler & Mandt (2020), where all weights are 1.
        """
        log_probs = self._log_prob_of_leaves(features, documents, self.leaf_of_label[labels])
        return float((log_probs * pair_weights).sum())

    def log_probs(self, features: Float32[Tensor, "batch k"]) -> Float32[Tensor, "batch label"]:
        """Return log p_n(y|x), in nats, of all labels: level by level, each node scored once."""
        rows = max(1, _MAX_PRODUCTS // max(1, self.weights.numel()))
        parts = [
            self._log_prob_of_all_leaves(part)[:, self.leaf_of_label].float()
            for part in torch.split(features, rows)
        ]
        return torch.cat(parts)

    @property
    def nodes(self) -> Nodes:
        """Weights and biases as the compiled loops take them; of a tree on the CPU."""
        return self.weights.numpy(), self.biases.numpy()

    def _log_prob_of_all_leaves(
        self, features: Float32[Tensor, "batch k"]
    ) -> Float64[Tensor, "batch leaf"]:
        if self.uses_kernels:
            return torch.from_numpy(log_prob_of_all_leaves(self.nodes, features.numpy()))
        return self.log_reach(features, self.depth)

    @property
    def uses_kernels(self) -> bool:
        """Whether compiled loops walk through the tree: on a CPU."""
        return self.weights.device.type == "cpu"

    def log_reach(
        self, features: Float32[Tensor, "batch k"], level: int
    ) -> Float64[Tensor, "batch reached"]:
        """Return the log-probability, in nats, that the path comes through each node of a level."""
        reach = torch.zeros((len(features), 1), dtype=torch.float64, device=features.device)
        for above in range(level):
            nodes = torch.arange(2**above - 1, 2 ** (above + 1) - 1, device=features.device)
            children = self.log_decisions(features.unsqueeze(1), nodes)  # (batch, nodes, 2)
            reach = (reach.unsqueeze(2) + children).flatten(1)
        return reach

    def log_decisions(
        self, features: Float32[Tensor, "*rows k"], nodes: Int64[Tensor, "*nodes"]
    ) -> Float64[Tensor, "*both 2"]:
        """Return log sigma(-w·x - b) and log sigma(w·x + b): of going left and right at nodes.

        Float64, and with the same rounding however many rows and nodes there are.
        """
        weights = self.weights[nodes].double()
        scores = _sum_in_fixed_order(weights * features.double()) + self.biases[nodes].double()
        return torch.stack([logsigmoid(-scores), logsigmoid(scores)], dim=-1)

    def sample(
        self, features: Float32[Tensor, "batch k"], num: int, generator: torch.Generator
    ) -> Int64[Tensor, "batch num"]:
        """Draw labels from p_n for each document, independently, in O(k log C) a draw.

        Args:
            features: From `project`.
            num: Draws a document.
            generator: Source of random numbers, on the tree's device.
        """
        return self.sample_with_log_prob(features, num, generator)[0]

    def sample_with_log_prob(
        self, features: Float32[Tensor, "batch k"], num: int, generator: torch.Generator
    ) -> tuple[Int64[Tensor, "batch num"], Float32[Tensor, "batch num"]]:
        """Draw labels as `sample`, and return log p_n of each, in nats, known from the same walk.

        On a CPU a decision's probability has a relative error of 1e-8 here, so p_n may differ from
        `log_prob` in the last bits.
        """
        rows = torch.arange(len(features), device=features.device).repeat_interleave(num)
        shape = (len(features), num)
        if self.uses_kernels:
            uniform = torch.rand(len(rows), dtype=torch.float64, generator=generator)
            leaves, log_probs = draw_leaves(
                self.nodes, features.numpy(), rows.numpy(), uniform.numpy()
            )
            labels = self.label_of_leaf[torch.from_numpy(leaves)].view(shape)
            return labels, torch.from_numpy(log_probs).view(shape)
        parts = [
            self._draw(features.index_select(0, part), generator)
            for part in torch.split(rows, _DRAWS_AT_A_TIME)
        ]
        labels = torch.cat(parts).view(shape)
        return labels, self.log_prob(features, labels)

    def quick_log_prob(
        self, features: Float32[Tensor, "batch k"], labels: Int64[Tensor, batch]
    ) -> Float32[Tensor, batch]:
        """Return log p_n, in nats, of a label of each document, as `sample_with_log_prob` does.

        Args:
            features: From `project`.
            labels: Label indices; no others.
        """
        if not self.uses_kernels:
            return self.log_prob(features, labels.unsqueeze(1)).squeeze(1)
        leaves = self.leaf_of_label[labels].numpy()
        return torch.from_numpy(quick_log_prob_of_leaves(self.nodes, features.numpy(), leaves))

    def _draw(
        self, features: Float32[Tensor, "draw k"], generator: torch.Generator
    ) -> Int64[Tensor, draw]:
        device = features.device
        nodes = torch.zeros(len(features), dtype=torch.int64, device=device)
        for _ in range(self.depth):
            products = self.weights.index_select(0, nodes) * features
            scores = products.sum(1) + self.biases.index_select(0, nodes)
            uniform = torch.rand(len(nodes), generator=generator, device=device)
            nodes = 2 * nodes + 1 + (uniform < scores.sigmoid())
        return self.label_of_leaf[nodes - len(self.biases)]

    def _log_prob_of_leaves(
        self,
        features: Float32[Tensor, "document k"],
        documents: Int64[Tensor, pair],
        leaves: Int64[Tensor, pair],
    ) -> Float64[Tensor, pair]:
        if self.uses_kernels:
            arrays = (features.numpy(), documents.numpy(), leaves.numpy())
            return torch.from_numpy(log_prob_of_leaves(self.nodes, *arrays))
        pairs = max(1, _MAX_PRODUCTS_ON_GPU // (features.shape[1] * max(1, self.depth)))
        parts = [
            self._walk_to_leaves(features.index_select(0, rows), part)
            for rows, part in zip(
                torch.split(documents, pairs), torch.split(leaves, pairs), strict=True
            )
        ]
        return torch.cat(parts)

    def _walk_to_leaves(
        self, features: Float32[Tensor, "pair k"], leaves: Int64[Tensor, pair]
    ) -> Float64[Tensor, pair]:
        levels = torch.arange(self.depth, device=leaves.device)
        nodes = (leaves[:, None] >> (self.depth - levels)) + (2**levels - 1)  # (pair, level)
        goes_right = (leaves[:, None] >> (self.depth - levels - 1)) & 1
        decisions = self.log_decisions(features[:, None], nodes)  # (pair, level, 2)
        of_levels = decisions.gather(2, goes_right[:, :, None]).squeeze(2)
        total = torch.zeros(len(leaves), dtype=torch.float64, device=leaves.device)
        for level in range(self.depth):  # one after the other, as `log_reach` adds them
            total += of_levels[:, level]
        return total


def project(
    vectors: Float32[Tensor, "batch dim"],
    mean: Float32[Tensor, dim],
    components: Float32[Tensor, "k dim"],
) -> Float32[Tensor, "batch k"]:
    """Return the inner products of centred vectors with components (see `LabelTree.project`)."""
    check_finite(vectors)
    rows = max(1, _MAX_PRODUCTS // components.numel())
    parts = [
        _sum_in_fixed_order((part.double() - mean.double()).unsqueeze(1) * components.double())
        for part in torch.split(vectors, rows)
    ]
    return torch.cat(parts).float()


def check_finite(vectors: Float32[Tensor, "batch dim"]) -> None:
    """Refuse document vectors that no tree can read."""
    is_bad = ~vectors.isfinite().all(dim=1)
    if bool(is_bad.any()):
        raise DataError(
            f"label tree: {int(is_bad.sum())} of {len(vectors)} document vectors are not finite, "
            f"the first in row {int(is_bad.int().argmax())}; mend or leave out these documents"
        )


def _sum_in_fixed_order(terms: Float64[Tensor, "*rows term"]) -> Float64[Tensor, "*rows"]:
    """Return sums over the last axis, halving it; a library's sum may depend on the shape."""
    while (num_terms := terms.shape[-1]) > 1:
        half = num_terms // 2
        halves = terms[..., :half] + terms[..., half : 2 * half]
        terms = torch.cat([halves, terms[..., 2 * half :]], dim=-1) if num_terms % 2 else halves
    return terms.squeeze(-1)
