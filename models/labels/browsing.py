"""All labels of a catalogue, one level at a time: below their broader labels, and by their letters.

A level of more labels than people look through is divided by the beginnings of their names: under
the headings `o…`, `ol…` stand the labels whose names begin so.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from longtail.models.errors import DataError, LabelNotFoundError
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.labels.hierarchy import LabelHierarchy
from longtail.models.labels.search import folded

MAX_SHOWN = 500
"""Labels of a level that are shown together."""
_HEADING = "…"
_SEPARATOR = " / "
"""By which tools join the elements of a path; an element must not hold it."""
_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Node:
    """A label, or a heading above labels.

    Attributes:
        element: Its own element of a path.
        name: What people read.
        row: Of the label; None: it is a heading.
        has_more: Whether anything stands below it.
    """

    element: str
    name: str
    row: int | None
    has_more: bool


class LabelBrowser:
    """The levels of one catalogue; a path leads from the first one down to a label.

    An element of a path is the name of a label, else its id where the name would not lead back to
    it; or a heading.
    """

    def __init__(
        self, catalogue: LabelCatalogue, hierarchy: LabelHierarchy, max_shown: int = MAX_SHOWN
    ) -> None:
        """Take the labels."""
        self._catalogue = catalogue
        self._hierarchy = hierarchy
        self._max_shown = max_shown

    def below(self, path: Sequence[str] = ()) -> list[Node]:
        """Return what stands right below a path, in the order of the names.

        Args:
            path: Of a label or a heading; empty: the first level.
        """
        labels = [index for index, element in enumerate(path) if not self.is_heading(element)]
        parent = self.row_of(path[labels[-1]]) if labels else None
        headings = path[labels[-1] + 1 :] if labels else path
        prefix = headings[-1].removesuffix(_HEADING) if headings else ""
        return list(self._shown(self._level(parent), prefix))

    def path_of(self, row: int) -> tuple[str, ...]:
        """Return the shortest path to a label, its own element the last one."""
        rows = [row]
        while (above := self._above.get(rows[-1])) is not None:
            rows.append(above)
        path: list[str] = []
        for parent, label in zip([None, *rows[:0:-1]], rows[::-1], strict=True):
            path += self._headings(self._level(parent), self._folded(label))
            path.append(self.element_of(label))
        return tuple(path)

    def element_of(self, row: int) -> str:
        """Return the name of a label; its id where the name does not lead back to it."""
        label = self._catalogue[row]
        if not label.name or _SEPARATOR in label.name:
            return label.id
        try:
            return label.name if self._catalogue.index_of(label.name) == row else label.id
        except DataError:
            return label.id

    def row_of(self, element: str) -> int:
        """Return the label of an element."""
        try:
            return self._catalogue.index_of(element)
        except DataError as error:
            raise LabelNotFoundError(f"{error}") from error

    def is_heading(self, element: str) -> bool:
        """Whether an element stands for the labels below it, and is none itself."""
        return element.endswith(_HEADING) and not self._catalogue.knows(element)

    def _shown(self, level: _Level, prefix: str) -> Iterator[Node]:
        first, last = level.range(prefix)
        if last - first <= self._max_shown:
            yield from map(self._node, level.rows[first:last])
            return
        while first < last:
            longer = level.names[first][: len(prefix) + 1]
            if longer == prefix:  # all of the name: nothing is left to divide by
                yield self._node(level.rows[first])
                first += 1
                continue
            _, end = level.range(longer)
            if end - first == 1:
                yield self._node(level.rows[first])
            else:
                heading = longer + _HEADING
                yield Node(heading, heading, None, has_more=True)
            first = end

    def _headings(self, level: _Level, name: str) -> Iterator[str]:
        """Yield the headings of a level that a name stands under."""
        for length in range(len(name)):
            first, last = level.range(name[:length])
            if last - first <= self._max_shown:
                return
            first, last = level.range(name[: length + 1])
            if last - first == 1:
                return
            yield name[: length + 1] + _HEADING

    def _node(self, row: int) -> Node:
        return Node(
            self.element_of(row),
            self._catalogue[row].name,
            row,
            has_more=bool(self._hierarchy.narrower(row)),
        )

    def _level(self, parent: int | None) -> _Level:
        if parent is None:
            return self._first_level
        return self._sorted(self._hierarchy.narrower(parent))

    @cached_property
    def _first_level(self) -> _Level:
        """The labels at the top, and the labels that are neither above nor below another."""
        rows = range(len(self._catalogue))
        single = (
            row
            for row in rows
            if not self._hierarchy.broader(row) and not self._hierarchy.narrower(row)
        )
        return self._sorted({*self._hierarchy.tops, *single})

    @cached_property
    def _above(self) -> dict[int, int]:
        """The label that each one is first reached from, on the way down from the top."""
        tops = sorted(self._hierarchy.tops)
        above: dict[int, int] = {}
        reached, left = set(tops), deque(tops)
        while left:
            row = left.popleft()
            for below in self._hierarchy.narrower(row):
                if below not in reached:
                    reached.add(below)
                    above[below] = row
                    left.append(below)
        return above

    def _sorted(self, rows: Iterable[int]) -> _Level:
        in_use = (row for row in rows if self._catalogue[row].is_in_use)
        pairs = sorted((self._folded(row), row) for row in in_use)
        return _Level([name for name, _ in pairs], [row for _, row in pairs])

    def _folded(self, row: int) -> str:
        return folded(self._catalogue[row].name).strip()


@dataclass(frozen=True, slots=True)
class _Level:
    """Labels side by side.

    Attributes:
        names: Folded; rising.
        rows: Of the labels with these names.
    """

    names: list[str]
    rows: list[int]

    def range(self, prefix: str) -> tuple[int, int]:
        """Return where the names with a prefix begin, and where they end."""
        first = bisect_left(self.names, prefix)
        return first, bisect_left(self.names, prefix + _LAST, first)
