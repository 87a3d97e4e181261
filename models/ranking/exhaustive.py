"""When all labels are scored instead of searched for, and how much of that is held in memory."""

from __future__ import annotations

from itertools import pairwise

_ALWAYS_UP_TO = 1024
"""So few candidates are all scored; see tests/bench/blended_ranking.py and labels.py."""
_SHARE = 64
"""And no more than the catalogue's labels divided by this."""
_BY_MATRIX_UP_TO = 5000
"""So few labels are all scored where one matrix product does; tests/bench/corrected_ranking.py."""
MAX_SCORES = 2**18
"""Scores of one scorer that are held at a time."""
MAX_PRODUCTS = 2**22
"""Numbers of a float32 matrix product that are held at a time: 16 MiB."""


def scores_all(num_candidates: int, num_labels: int, *, by_matrix: bool = False) -> bool:
    """Return whether all candidates are scored, which for few is faster than a search.

    Either way gives the same labels and scores, to the bit.

    Args:
        num_candidates: Labels that may be returned.
        num_labels: Labels of the catalogue.
        by_matrix: Whether one matrix product proposes the best, else each is scored by itself.
    """
    if by_matrix:
        return num_candidates <= _BY_MATRIX_UP_TO
    return num_candidates <= max(_ALWAYS_UP_TO, num_labels // _SHARE)


def row_parts(num_rows: int, num_columns: int, max_numbers: int) -> list[slice]:
    """Return consecutive parts of a matrix's rows, at least one, of about equal size.

    Args:
        num_rows: All rows.
        num_columns: Numbers in a row.
        max_numbers: Of a part, unless a single row has more.
    """
    num_parts = max(1, min(num_rows, num_rows * num_columns // max_numbers + 1))
    ends = [num_rows * part // num_parts for part in range(num_parts + 1)]
    return [slice(start, end) for start, end in pairwise(ends)]
