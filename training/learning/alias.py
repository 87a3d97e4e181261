"""Draws from a fixed distribution over many labels at a cost that does not depend on their number.

The alias method (Walker 1977): every label has one cell of equal size, shared with at most one
other label. A draw picks a cell, then one of its two labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor


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

        Labels in need (below 1/L) and labels in plenty (above) stand in two queues. A giver fills
        the next cell in need until it has no more than its own cell; what it then lacks itself the
        next giver fills. So who fills which cell follows from the running sums of need and plenty.

        Args:
            probabilities: Of all labels, not negative, not all 0; scaled to sum to 1.
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
