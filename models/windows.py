"""How texts are read that are longer than the encoder reads at once: in overlapping windows.

A text's vector is the mean, or the elementwise maximum, of its windows' vectors. So it stays one
vector, and all that is made of vectors stays as it is: exact search through one index, corrections
by the label tree, linear scorers, blends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WindowPool = Literal["mean", "max"]
"""What the vector of a text is of those of its windows, dimension by dimension."""


@dataclass(frozen=True, slots=True)
class Windows:
    """How long texts are read.

    Attributes:
        overlap: Tokens that a window has in common with the one before, at most half of a window.
        pool: What is made of the windows' vectors.
        most: Windows a text, at least 2; what lies behind the last is not read.
    """

    overlap: int
    pool: WindowPool
    most: int

    def spans(self, num_tokens: int, width: int) -> list[tuple[int, int]]:
        """Return where the windows of a text begin and end.

        Each begins `width - overlap` tokens after the one before. One that would go beyond the end
        is moved back to end there, so that all are full, and count alike in a mean.

        Args:
            num_tokens: Of the text, without special ones.
            width: Of a window, without special tokens; more than the overlap.
        """
        stride = width - self.overlap
        wanted = 1 + max(0, -(-(num_tokens - width) // stride))
        last = max(0, num_tokens - width)
        starts = (min(i * stride, last) for i in range(min(wanted, self.most)))
        return [(start, min(start + width, num_tokens)) for start in starts]

    def longest(self, width: int) -> int:
        """Return how many tokens the longest text has of which all is read (see `spans`)."""
        return width + (self.most - 1) * (width - self.overlap)
