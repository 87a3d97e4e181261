"""One part of a corpus: documents that stream from a file, and the label matrix that they make.

Memory is bounded by the label matrix: of the text, one line is held at a time.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float32
from scipy.sparse import csr_array

from models.errors import DataError
from models.labels import LabelCatalogue
from training.formats import Format, RawDocument, read_documents
from training.problems import Problem, ProblemList, list_problems

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Document:
    """A text and its labels.

    Attributes:
        id: The file's identifier of it; the number of its line where the file gives none.
        text: What is to be tagged; not blank.
        labels: Label indices, rising, each once.
    """

    id: str
    text: str
    labels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SplitScan:
    """What one pass over a split found.

    Attributes:
        labels: One row for each good line, 1 where the document carries the label.
        num_skipped: Lines that can't be used.
        problems: The first of them, as file, line number and reason.
        num_unlabelled: Good lines without labels.
        num_repeated_ids: Good lines whose document id occurs on an earlier one.
    """

    labels: Float32[csr_array, "document label"]
    num_skipped: int
    problems: tuple[str, ...]
    num_unlabelled: int
    num_repeated_ids: int


class Split:
    """One part of a dataset; its text is read anew each time it is asked for."""

    def __init__(
        self,
        path: Path,
        form: Format,
        labels: Callable[[], LabelCatalogue],
        *,
        labels_from: str,
        skip_bad: bool,
        max_problems: int,
    ) -> None:
        """Keep where the documents lie; nothing is read yet.

        Args:
            path: File of the split.
            form: Format of the file.
            labels: Gives the labels that documents may carry, in row order.
            labels_from: Where these come from, for messages about those that are unknown.
            skip_bad: Whether lines that can't be used are skipped rather than refused.
            max_problems: How many of them are listed.
        """
        self.path = path
        self._form = form
        self._labels = labels
        self._labels_from = labels_from
        self._skip_bad = skip_bad
        self._max_problems = max_problems

    def scan(self) -> SplitScan:
        """Read every line once and return the label matrix; the result is kept.

        Raises:
            DataError: Lines can't be used, and they are not to be skipped or there are no others;
                it lists them all, up to the limit. Or the file can't be read to its end, or is
                empty.
        """
        found = self.found
        if found.num_skipped and not (self._skip_bad and found.labels.shape[0]):
            raise DataError(describe_problems(self.path.parent, [found]))
        return found

    def texts(self) -> Iterator[str]:
        """Return the texts of the good lines, in the row order of `scan().labels`.

        Raises:
            DataError: As `scan`, before the first text.
        """
        return (document.text for document in self)

    def __iter__(self) -> Iterator[Document]:
        """Return the documents of the good lines, in row order.

        Raises:
            DataError: As `scan`, before the first document; or the file changed since then.
        """
        return self._stream(self.scan().labels.shape[0])

    @cached_property
    def found(self) -> SplitScan:
        """What a pass over the split finds, whether or not bad lines are to be skipped.

        Raises:
            DataError: The file can't be read to its end, or holds no document at all.
        """
        problems = ProblemList(self.path, self._max_problems)
        rows = _LabelRows()
        for item in self._lines():
            if isinstance(item, Document):
                rows.add(item)
            else:
                problems.add(item)
        if not rows.num_documents and not problems.num_problems:
            raise DataError(f"{self.path}: no documents; give at least one, or leave the file out")
        found = SplitScan(
            labels=rows.matrix(len(self._labels())),
            num_skipped=problems.num_problems,
            problems=problems.kept,
            num_unlabelled=rows.num_unlabelled,
            num_repeated_ids=rows.num_repeated_ids(),
        )
        self._log(found)
        return found

    def _stream(self, num_documents: int) -> Iterator[Document]:
        num_read = 0
        for item in self._lines():
            if isinstance(item, Document):
                num_read += 1
                yield item
        if num_read != num_documents:
            raise DataError(
                f"{self.path}: had {num_documents} good documents before and has {num_read} now; "
                "leave the file alone while it is read, and start again"
            )

    def _lines(self) -> Iterator[Document | Problem]:
        labels = self._labels()
        for raw in read_documents(self.path, self._form):
            if isinstance(raw, Problem):
                yield raw
                continue
            try:
                item: Document | Problem = Document(raw.id, raw.text, self._rows_of(raw, labels))
            except DataError as error:
                item = Problem(raw.line, str(error))
            yield item

    def _rows_of(self, raw: RawDocument, labels: LabelCatalogue) -> tuple[int, ...]:
        # Every label that is unknown is named, not the first alone.
        rows: set[int] = set()
        unknown: list[str] = []
        for label in raw.labels:
            try:
                rows.add(_row_of(label, labels))
            except DataError as error:
                unknown.append(str(error))
        if unknown:
            raise DataError("; ".join([*unknown, f"the labels are those of {self._labels_from}"]))
        return tuple(sorted(rows))

    def _log(self, found: SplitScan) -> None:
        if found.num_skipped and self._skip_bad:
            logger.warning(
                "%s: skipped %d lines that can't be used:\n%s",
                self.path,
                found.num_skipped,
                list_problems(found.problems, found.num_skipped),
            )
        if found.num_repeated_ids:
            logger.warning(
                "%s: %d documents have an id that an earlier one has",
                self.path,
                found.num_repeated_ids,
            )


def describe_problems(folder: Path, scans: Sequence[SplitScan]) -> str:
    """Return a message that lists the lines of these splits that can't be used."""
    num_skipped = sum(scan.num_skipped for scan in scans)
    lists = [list_problems(x.problems, x.num_skipped) for x in scans if x.num_skipped]
    what = f"{num_skipped} lines can't be used; mend them, or skip them with --skip-bad"
    return "\n".join([f"{folder}: {what}", *lists])


def _row_of(label: int | str, labels: LabelCatalogue) -> int:
    if isinstance(label, str):
        return labels.index_of(label)
    if not 0 <= label < len(labels):
        raise DataError(f"label index {label} is out of range; wanted 0 to {len(labels) - 1}")
    return label


class _LabelRows:
    """Gathers the label matrix in plain arrays: a few bytes a label, nothing of the text."""

    def __init__(self) -> None:
        self._indices = array("i")
        self._starts = array("q", [0])
        self._id_hashes = array("q")
        self.num_unlabelled = 0

    @property
    def num_documents(self) -> int:
        return len(self._starts) - 1

    def add(self, document: Document) -> None:
        self._indices.extend(document.labels)
        self._starts.append(len(self._indices))
        self._id_hashes.append(hash(document.id))
        self.num_unlabelled += not document.labels

    def num_repeated_ids(self) -> int:
        hashes = np.array(self._id_hashes, dtype=np.int64)
        return len(hashes) - len(np.unique(hashes))

    def matrix(self, num_labels: int) -> Float32[csr_array, "document label"]:
        # 32 bits wherever they are enough, as scikit-learn wants them.
        dtype = np.int32 if len(self._indices) < 2**31 else np.int64
        indices = np.array(self._indices, dtype=dtype)
        starts = np.array(self._starts, dtype=dtype)
        ones = np.ones(len(indices), dtype=np.float32)
        return csr_array((ones, indices, starts), shape=(self.num_documents, num_labels))
