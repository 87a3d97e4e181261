"""One part of a corpus: documents that stream from a file, and the label matrix that they make.

Memory is bounded by the label matrix: of the text, one line is held at a time.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, compress
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Int64, UInt64
from scipy.sparse import csr_array

from longtail.models.bundle.trained_on import digest_of, digests_of
from longtail.models.corpus.documents import read_documents, recognised
from longtail.models.corpus.forms import DocumentSource
from longtail.models.corpus.raw import MOST_REPEATS, RawDocument
from longtail.models.errors import DataError, count_of
from longtail.models.files.text_files import BadLine, ProblemList, list_problems
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.labels.cells import IsLabel
from longtail.models.scorers.character_terms import has_word
from longtail.training.runtime.run_log import counted

logger = logging.getLogger(__name__)


class SparseRows:
    """Gathers a CSR matrix of ones row by row; its arrays are all that it holds."""

    def __init__(self) -> None:
        """Start without rows."""
        self._indices = array("i")
        self._sizes = array("i")

    def add(self, columns: Iterable[int]) -> None:
        """Append a row of ones at these columns."""
        before = len(self._indices)
        self._indices.extend(columns)
        self._sizes.append(len(self._indices) - before)

    def matrix(self, num_columns: int) -> Float32[csr_array, "row column"]:
        """Return the matrix, columns rising in each row; nothing can be appended after."""
        indices, num_rows = _view(self._indices), len(self._sizes)
        # 32 bits wherever they are enough, as scikit-learn wants them.
        starts = np.zeros(num_rows + 1, np.int32 if len(indices) < 2**31 else np.int64)
        np.cumsum(_view(self._sizes), out=starts[1:])
        values = np.ones(len(indices), np.float32)
        matrix = csr_array((values, indices, starts), shape=(num_rows, num_columns))
        matrix.sort_indices()
        return matrix


def _view(values: array[int]) -> np.ndarray:
    return np.frombuffer(values, dtype=np.int32) if values else np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Document:
    """A text and its labels.

    Attributes:
        id: The file's identifier of it; the number of its line where the file gives none.
        text: What is to be tagged; not blank.
        labels: Label indices, rising, each once.
        group: What it has in common with others, as a patient; None where no column is named.
        has_id: Whether the file gives the identifier.
    """

    id: str
    text: str
    labels: tuple[int, ...]
    group: str | None = None
    has_id: bool = True


@dataclass(frozen=True, slots=True)
class UnknownLabels(BadLine):
    """A line whose only fault is a label that the label file lacks, or has twice."""


@dataclass(frozen=True, slots=True)
class SplitScan:
    """What one pass over a split found.

    Attributes:
        labels: One row for each good line, 1 where the document carries the label.
        num_skipped: Lines that can't be used.
        problems: The first of them, as file, line number and reason.
        num_unlabelled: Good lines without labels.
        lengths: Characters of the text of each good line.
        texts: Digest of the text of each good line (see `longtail.models.bundle.trained_on`).
        num_repeated_ids: Good lines whose document id occurs on an earlier one.
        num_repeats: Good lines whose text occurs on an earlier one.
        num_wordless: Good lines whose text has no letter and no digit.
        num_unknown: Skipped lines whose only fault is a label that the label file lacks.
        unknown: The first of them, as `problems`.
    """

    labels: Float32[csr_array, "document label"]
    num_skipped: int
    problems: tuple[str, ...]
    num_unlabelled: int
    lengths: Int64[np.ndarray, document]
    texts: UInt64[np.ndarray, document]
    num_repeated_ids: int = 0
    num_repeats: int = 0
    num_wordless: int = 0
    num_unknown: int = 0
    unknown: tuple[str, ...] = ()


@dataclass(eq=False)
class Split:
    """One part of a dataset; its documents are read each time they are asked for.

    Attributes:
        source: Where the documents lie.
        labels: Gives the labels that documents may carry, in row order.
        label_file: Name of the file that lists them; None where the documents tell them.
        is_measured: Whether models are measured on these documents: none may then be skipped for a
            label that the file lacks, for the rest would be easier.
        skip_bad: Whether lines that can't be used are skipped rather than refused.
        max_problems: How many of them are listed.
        told: Notes on how other splits are read, which are not repeated; added to.
    """

    source: DocumentSource
    labels: Callable[[], LabelCatalogue]
    label_file: str | None
    is_measured: bool
    skip_bad: bool
    max_problems: int
    told: set[str]
    _is_good: Sequence[int] = ()  # whether the labels of each document are known
    _is_in: Bool[np.ndarray, document] | None = None  # of the good ones; None: all are
    _new: tuple[RawDocument, ...] = ()  # behind those of the file

    @property
    def path(self) -> Path:
        """The file, or what stands for its files, as messages name it."""
        return self.source.place

    def part(self, is_in: Bool[np.ndarray, document]) -> Split:
        """Return some of the documents, in their order, as a split; they stream from the same file.

        Oddities of the file are reported for this split alone: the scan of a part knows of no
        skipped and no repeated lines.

        Args:
            is_in: Whether each document of this split is in the part.
        """
        whole, inside = self.scan(), is_in
        labels = whole.labels[is_in]
        if self._is_in is not None:
            inside = self._is_in.copy()
            inside[self._is_in] = is_in
        part = replace(self, _is_in=inside)
        found = (whole.lengths[is_in], whole.texts[is_in])
        part.found = SplitScan(labels, 0, (), num_empty_rows(labels), *found)
        return part

    def changed(
        self, labels: Float32[csr_array, "document label"], new: Sequence[RawDocument] = ()
    ) -> Split:
        """Return these documents with other labels, and new documents behind them, as a split.

        Args:
            labels: Labels of all these documents, then the new ones.
            new: Documents that the file lacks.
        """
        whole, inside = self.scan(), self._is_in
        if inside is not None:
            inside = np.append(inside, np.ones(len(new), dtype=np.bool_))
        view = replace(self, _is_in=inside, _new=(*self._new, *new))
        texts = [document.text for document in new]
        view.found = SplitScan(
            labels, 0, (), num_empty_rows(labels),
            np.append(whole.lengths, np.array(list(map(len, texts)), dtype=np.int64)),
            np.append(whole.texts, digests_of(texts)),
        )  # fmt: skip
        return view

    def scan(self) -> SplitScan:
        """Read every line once and return the label matrix; the result is kept."""
        found = self.found
        if found.num_unknown and self.is_measured and self.skip_bad:
            raise DataError(
                f"{self.path}: {count_of(found.num_unknown, 'line')} can't be skipped, for unknown "
                "labels are no reason to measure on the rest alone, which is easier; add the "
                f"labels to {self.label_file} (they need no training documents), or take them "
                f"out of the documents\n{list_problems(found.unknown, found.num_unknown)}"
            )
        if found.num_skipped and not (self.skip_bad and found.labels.shape[0]):
            raise DataError(describe_problems(self.path.parent, [found]))
        return found

    @cached_property
    def found(self) -> SplitScan:
        """What a pass over the split finds, whether or not bad lines are to be skipped."""
        found = self._read()
        if not found.labels.shape[0] and not found.num_skipped:
            raise DataError(f"{self.path}: no documents; give at least one, or leave the file out")
        self._log(found)
        return found

    def __len__(self) -> int:
        return int(self.scan().labels.shape[0])

    def texts(self) -> Iterator[str]:
        """Return the texts of the good lines, in the row order of `scan().labels`."""
        self.scan()
        return (document.text for document in self._good_documents())

    def __iter__(self) -> Iterator[Document]:
        """Return the documents of the good lines, in row order."""
        labels = self.scan().labels
        return (
            _document(raw, tuple(labels.indices[slice(*labels.indptr[row : row + 2])].tolist()))
            for row, raw in enumerate(self._good_documents())
        )

    def _good_documents(self) -> Iterator[RawDocument]:
        items = read_documents(self.source, self._is_label)
        raws = compress((raw for raw in items if isinstance(raw, RawDocument)), self._is_good)
        every = chain(raws, self._new)
        return every if self._is_in is None else compress(every, self._is_in.tolist())

    def _log(self, found: SplitScan) -> None:
        if found.num_skipped and self.skip_bad:
            logger.warning(
                "%s: skipped %s that can't be used:\n%s",
                self.path,
                count_of(found.num_skipped, "line"),
                list_problems(found.problems, found.num_skipped),
            )
        oddities = {
            "no label": found.num_unlabelled,
            "an id that an earlier one has": found.num_repeated_ids,
            "the text of an earlier one": found.num_repeats,
            "no word, only signs": found.num_wordless,
        }
        if any(oddities.values()):
            logger.warning(
                "%s: of %d documents, %s",
                self.path,
                found.labels.shape[0],
                ", ".join(f"{count} have {what}" for what, count in oddities.items() if count),
            )
        if question := ask_for_pairs(
            found.labels.shape[0], int(found.labels.nnz), found.num_repeats, found.num_repeated_ids
        ):
            logger.warning("%s: %s", self.path, question)

    def _read(self) -> SplitScan:
        if self.source.part in {None, "train"}:
            for remark in recognised(self.source):
                if remark not in self.told:
                    logger.warning("%s: %s", self.path, remark)
                self.told.add(remark)
        problems = ProblemList(self.path, self.max_problems)
        unknown = ProblemList(self.path, self.max_problems)
        labels, lengths = SparseRows(), array("q")
        texts, names = array("Q"), array("q")  # digests, and hashes of the ids
        num_wordless = 0
        is_good = bytearray()
        for item in self.lines_counted():
            if isinstance(item, Document | UnknownLabels):
                is_good.append(isinstance(item, Document))
            if isinstance(item, Document):
                labels.add(item.labels)
                names.append(hash(item.id))
                texts.append(digest_of(item.text))
                lengths.append(len(item.text))
                num_wordless += not has_word(item.text)
            else:
                problems.add(item)
                if isinstance(item, UnknownLabels):
                    unknown.add(item)
        self._is_good = is_good
        matrix = labels.matrix(len(self.labels()))
        return SplitScan(
            labels=matrix,
            num_skipped=problems.num_problems,
            problems=problems.kept,
            num_unlabelled=num_empty_rows(matrix),
            lengths=np.array(lengths, dtype=np.int64),
            texts=np.array(texts, dtype=np.uint64),
            num_repeated_ids=num_repeats(np.array(names, dtype=np.int64)),
            num_repeats=num_repeats(np.array(texts, dtype=np.uint64)),
            num_wordless=num_wordless,
            num_unknown=unknown.num_problems,
            unknown=unknown.kept,
        )

    def lines_counted(self) -> Iterator[Document | BadLine]:
        """Yield `lines`, with a bar that counts them where that takes a while."""
        return counted(self.lines(), f"reading {self.source.part or self.path.name}")

    def lines(self) -> Iterator[Document | BadLine]:
        """Yield the documents, and the error of each line that can't be used."""
        labels = self.labels()
        for raw in read_documents(self.source, self._is_label):
            if isinstance(raw, BadLine):
                yield raw
                continue
            try:
                item: Document | BadLine = _document(raw, self._rows_of(raw, labels))
            except DataError as error:
                item = UnknownLabels(raw.line, str(error))
            yield item

    @property
    def _is_label(self) -> IsLabel | None:
        return None if self.label_file is None else self.labels().knows

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
            raise DataError("; ".join([*unknown, f"the labels are those of {self.label_file}"]))
        return tuple(sorted(rows))


def _document(raw: RawDocument, rows: tuple[int, ...]) -> Document:
    return Document(raw.id or str(raw.line), raw.text, rows, raw.group, has_id=bool(raw.id))


def ask_for_pairs(num_rows: int, num_labels: int, num_repeats: int, num_repeated_ids: int) -> str:
    """Return the question whether documents are rows of one label each; empty: they are not.

    Args:
        num_rows: The documents.
        num_labels: Number of labels of all documents.
        num_repeats: Documents with the text of an earlier one.
        num_repeated_ids: Documents with the id of an earlier one.
    """
    are_shared = num_labels <= num_rows and num_repeats >= MOST_REPEATS * num_rows > 0
    if are_shared or 2 * num_repeated_ids >= num_rows > 1:
        return "has it a row for each label? Then give --one-row-per-label"
    return ""


def describe_problems(folder: Path, scans: Sequence[SplitScan]) -> str:
    """Return a message that lists the lines of these splits that can't be used."""
    num_skipped = sum(scan.num_skipped for scan in scans)
    lists = [list_problems(x.problems, x.num_skipped) for x in scans if x.num_skipped]
    them = "it" if num_skipped == 1 else "them"
    advice = f"fix {them}, or skip {them} with --skip-bad"
    if not all(scan.labels.shape[0] for scan in scans if scan.num_skipped):
        advice = f"no others are left; fix {them}"
    what = f"{count_of(num_skipped, 'line')} can't be used; {advice}"
    return "\n".join([f"{folder}: {what}", *lists])


def _row_of(label: int | str, labels: LabelCatalogue) -> int:
    if isinstance(label, str):
        return labels.index_of(label)
    if not 0 <= label < len(labels):
        raise DataError(f"label index {label} is out of range; expected 0 to {len(labels) - 1}")
    return label


def num_empty_rows(matrix: Float32[csr_array, "row column"]) -> int:
    """Return how many rows hold nothing."""
    return int(np.count_nonzero(np.diff(matrix.indptr) == 0))


def num_repeats(hashes: Int64[np.ndarray, row] | UInt64[np.ndarray, row]) -> int:
    """Return how many of them an earlier one equals."""
    return len(hashes) - len(np.unique(hashes))
