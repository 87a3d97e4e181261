"""Lines of a file that can't be used, and how they are listed for the person who fixes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_MAX_REASON_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that can't be used.

    Attributes:
        line: Its number in its file, from 1; of a CSV record, its first line.
        reason: What is wrong with it.
    """

    line: int
    reason: str


class ProblemList:
    """The problems of one file: all are counted, the first are kept."""

    def __init__(self, path: Path, max_kept: int) -> None:
        """Start with no problems.

        Args:
            path: File that they are in.
            max_kept: How many of them are kept.
        """
        self._path = path
        self._max_kept = max_kept
        self._kept: list[str] = []
        self.num_problems = 0

    def add(self, problem: BadLine) -> None:
        """Count a problem, and keep it if there is room."""
        self.num_problems += 1
        if len(self._kept) < self._max_kept:
            reason = problem.reason
            if len(reason) > _MAX_REASON_CHARACTERS:
                reason = reason[:_MAX_REASON_CHARACTERS] + "..."
            self._kept.append(f"{self._path.name}, line {problem.line}: {reason}")

    @property
    def kept(self) -> tuple[str, ...]:
        """The first problems, each as file name, line number and reason."""
        return tuple(self._kept)


def counted_lines(number: int) -> str:
    """Return "1 line", "2 lines", ..."""
    return "1 line" if number == 1 else f"{number} lines"


def list_problems(kept: Sequence[str], num_problems: int) -> str:
    """Return the problems that were kept, one a line, and how many more there are."""
    num_more = num_problems - len(kept)
    more = [f"... and {num_more} more"] if num_more else []
    return "\n".join(f"  {line}" for line in [*kept, *more])
