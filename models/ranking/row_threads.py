"""Work on parts of the rows of a batch, done by several threads at the same time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_ROWS_A_PART = 64
_Result = TypeVar("_Result")


def in_row_parts(
    work: Callable[[slice], _Result],
    num_rows: int,
    num_threads: int,
    part_size: int = _ROWS_A_PART,
) -> list[_Result]:
    """Return the results of some work on consecutive parts of the rows, at least one, in order.

    Args:
        work: Called with each part; it should release the interpreter's lock.
        num_rows: All rows.
        num_threads: That work at the same time, where there are many rows.
        part_size: Rows that one thread works on at a time.
    """
    parts = [slice(start, start + part_size) for start in range(0, max(1, num_rows), part_size)]
    if len(parts) == 1 or num_threads == 1:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(num_threads) as threads:
        return list(threads.map(work, parts))
