"""Adagrad on single rows of a matrix: the cost of a step is that of the rows it changes.

Stored in float32 or in bfloat16. Half precision would lose what is small against the value it is
added to, the usual case both for weights late in training and for Adagrad's sums, so it is rounded
up or down at random, in proportion to the distance: right on average.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import BFloat16, Float, Float32, Int64
from torch import Tensor

_FIRST_SQUARE = 1e-8
"""Where the sums start. From 0, the first step would be a whole one however small the gradient:
of a gradient of 0, one in the direction of rounding errors."""

_LOW_BITS = 2**16  # what bfloat16 lacks of float32


@dataclass(frozen=True, slots=True, eq=False)
class AdagradRows:
    """A matrix in training, with the sum of squared gradients of each of its entries.

    Attributes:
        values: The matrix; changed in place.
        squares: The sums, in the same type.
    """

    values: Float[Tensor, "row dim"]
    squares: Float[Tensor, "row dim"]

    @classmethod
    def zeros(
        cls, shape: tuple[int, int], dtype: torch.dtype, device: torch.device | str
    ) -> AdagradRows:
        """Start at zero, and the sums at 1e-8, as Bamler & Mandt's published code has it."""
        values = torch.zeros(shape, dtype=dtype, device=device)
        return cls(values, torch.full_like(values, _FIRST_SQUARE))

    def take(self, rows: Int64[Tensor, taken]) -> Float32[Tensor, "taken dim"]:
        """Return a copy of rows."""
        return self.values.index_select(0, rows).float()

    def step(
        self,
        rows: Int64[Tensor, changed],
        gradient: Float32[Tensor, "changed dim"],
        learning_rate: float,
        generator: torch.Generator,
    ) -> None:
        """Take a step (Duchi, Hazan & Singer 2011, diagonal form).

        Args:
            rows: What to change; distinct.
            gradient: Of each row.
            learning_rate: rho: at most so much the first step changes an entry.
            generator: Rounds bfloat16; unused with float32.
        """
        squares = self.squares.index_select(0, rows).float().addcmul_(gradient, gradient)
        change = gradient / squares.sqrt()
        values = self.take(rows).sub_(change, alpha=learning_rate)
        for matrix, changed in ((self.squares, squares), (self.values, values)):
            if matrix.dtype == torch.bfloat16:
                matrix.index_copy_(0, rows, round_to_bfloat16(changed, generator))
            else:
                matrix.index_copy_(0, rows, changed)


def round_to_bfloat16(
    values: Float32[Tensor, "row dim"], generator: torch.Generator
) -> BFloat16[Tensor, "row dim"]:
    """Return one of the two neighbours of each value, by chance so that the mean is the value.

    The chances of a row's entries are not independent: drawing them one by one would cost more
    than the rest of a step. What bfloat16 holds exactly stays as it is.

    Args:
        values: Finite.
        generator: On their device.
    """
    device = values.device
    # A uniform number plus any other is uniform modulo 2^16: so is the sum of two.
    of_row, of_column = (
        torch.randint(_LOW_BITS, shape, generator=generator, device=device, dtype=torch.int32)
        for shape in ((len(values), 1), (1, values.shape[1]))
    )
    noise = (of_row + of_column).bitwise_and_(_LOW_BITS - 1)
    bits = noise.add_(values.view(torch.int32)).bitwise_and_(-_LOW_BITS)
    return bits.view(torch.float32).to(torch.bfloat16)
