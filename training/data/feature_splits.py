"""Parts of a corpus whose documents are features: the repository's bag-of-words forms."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int32, Int64
from scipy.sparse import csr_array

from models.errors import DataError
from training.data.files import CorpusFiles
from training.data.splits import Split, SplitScan, check_unchanged, num_empty_rows, num_repeats
from training.formats.bad_lines import Problem, ProblemList, list_problems
from training.formats.csr_builder import SparseRows, digests_of_rows
from training.formats.text_files import lines
from training.formats.xmc_text import SparseHeader, SparseLines, read_header, read_lines


@dataclass(frozen=True, slots=True)
class SparseFile:
    """A file and its header."""

    path: Path
    header: SparseHeader


@dataclass(frozen=True, slots=True)
class FeatureShape:
    """What all files of a corpus agree on: its numbers of features and of labels."""

    num_features: int
    num_labels: int


class FeatureSplit(Split):
    """A split whose documents are features."""

    def __init__(
        self,
        features: SparseFile,
        labels: SparseFile | None,
        *,
        num_labels: int,
        skip_bad: bool,
        max_problems: int,
    ) -> None:
        """Keep where the documents lie; nothing but the headers was read yet.

        Args:
            features: File of the documents.
            labels: File of their labels; None where they stand beside the features.
            num_labels: Labels that there are.
            skip_bad: Whether lines that can't be used are skipped rather than refused.
            max_problems: How many of them are listed for each file.
        """
        super().__init__(features.path, skip_bad=skip_bad, max_problems=max_problems)
        self._features = features
        self._labels = labels
        self._num_labels = num_labels
        self._lacking_labels = np.empty(0, dtype=np.int64)  # good lines whose label line is bad

    def features(self) -> Float32[csr_array, "document feature"]:
        """Return the features of the good lines (see `Split.features`)."""
        num_documents = self.scan().labels.shape[0]
        rows, numbers = SparseRows(), array("q")
        for item in read_lines(self._features.path, self._features.header):
            if isinstance(item, SparseLines):
                rows.extend(item.sizes, item.columns, item.values)
                numbers.frombytes(item.numbers.data.cast("B"))
        matrix = rows.matrix(self._features.header.num_columns)
        if len(self._lacking_labels):
            matrix = matrix[~np.isin(np.array(numbers), self._lacking_labels)]
        check_unchanged(self.path, num_documents, matrix.shape[0])
        return matrix

    def _read(self) -> SplitScan:
        problems = ProblemList(self.path, self._max_problems)
        documents = _read_documents(self._features, self._num_labels, problems)
        num_problems, kept = problems.num_problems, problems.kept
        if self._labels is not None:
            problems = ProblemList(self._labels.path, self._max_problems)
            documents, self._lacking_labels = _with_labels(documents, self._labels, problems)
            num_problems, kept = num_problems + problems.num_problems, kept + problems.kept
        is_featureless = documents.sizes == 0
        return SplitScan(
            labels=documents.labels,
            num_skipped=num_problems,
            problems=kept,
            num_unlabelled=num_empty_rows(documents.labels),
            num_repeats=num_repeats(documents.digests[~is_featureless]),
            num_featureless=int(np.count_nonzero(is_featureless)),
        )


@dataclass(frozen=True, slots=True)
class _Documents:
    """What a scan keeps of the documents: of each its line, its labels, and bits of its features.

    Attributes:
        numbers: Number of its line.
        sizes: Its number of features.
        digests: Equal for equal features.
        labels: Its labels, each once; none where they have a file of their own.
    """

    numbers: Int64[np.ndarray, document]
    sizes: Int32[np.ndarray, document]
    digests: Int64[np.ndarray, document]
    labels: Float32[csr_array, "document label"]


def _read_documents(file: SparseFile, num_labels: int, problems: ProblemList) -> _Documents:
    numbers, sizes, digests, labels = array("q"), array("i"), array("q"), SparseRows()
    for item in read_lines(file.path, file.header):
        if isinstance(item, Problem):
            problems.add(item)
            continue
        numbers.frombytes(item.numbers.data.cast("B"))
        sizes.frombytes(item.sizes.data.cast("B"))
        found = digests_of_rows(item.sizes, item.columns, item.values)
        digests.frombytes(found.data.cast("B"))
        labels.extend(item.label_sizes, item.labels)
    matrix = labels.matrix(num_labels)
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return _Documents(
        np.array(numbers, dtype=np.int64),
        np.array(sizes, dtype=np.int32),
        np.array(digests, dtype=np.int64),
        matrix,
    )


def _with_labels(
    documents: _Documents, file: SparseFile, problems: ProblemList
) -> tuple[_Documents, Int64[np.ndarray, line]]:
    """Return the documents whose label line is good too, and the lines of the others.

    Raises:
        DataError: A label has a value that doesn't say that the document carries it.
    """
    numbers, labels = array("q"), SparseRows()
    for item in read_lines(file.path, file.header):
        if isinstance(item, Problem):
            problems.add(item)
            continue
        if (item.values <= 0).any():
            line = np.repeat(item.numbers, item.sizes)[item.values <= 0][0]
            raise DataError(
                f"{file.path}, line {line}: a label of value {item.values.min():g}; wanted 1 for "
                "each label that the document carries, and no others"
            )
        numbers.frombytes(item.numbers.data.cast("B"))
        labels.extend(item.sizes, item.columns)
    has_labels = np.isin(documents.numbers, np.array(numbers, dtype=np.int64))
    has_document = np.isin(np.array(numbers, dtype=np.int64), documents.numbers)
    matrix = labels.matrix(file.header.num_columns)
    kept = _Documents(
        documents.numbers[has_labels],
        documents.sizes[has_labels],
        documents.digests[has_labels],
        matrix if has_document.all() else matrix[has_document],
    )
    return kept, documents.numbers[~has_labels]


def open_feature_splits(
    files: CorpusFiles, *, skip_bad: bool, max_problems: int
) -> tuple[dict[str, Split], FeatureShape]:
    """Read the headers of a corpus, and return its splits and what all of them agree on.

    Args:
        files: Of one of the bag-of-words forms.
        skip_bad: Whether lines that can't be used are skipped rather than refused.
        max_problems: How many of them are listed for each file.

    Raises:
        DataError: A header is none, or two of them contradict each other.
    """
    documents = {
        name: SparseFile(path, read_header(path, has_labels=not files.matrices))
        for name, path in files.splits.items()
    }
    labels = {
        name: SparseFile(path, read_header(path, has_labels=False, column="label"))
        for name, path in files.matrices.items()
    }
    for name in labels:
        pair = (documents[name], labels[name])
        _agreed("documents", {x.path: x.header.num_rows for x in pair})
    num_features = _agreed("features", {x.path: x.header.num_columns for x in documents.values()})
    num_labels = _agreed(
        "labels",
        {x.path: x.header.num_columns for x in labels.values()}
        or {x.path: x.header.num_labels or 0 for x in documents.values()},
    )
    splits: dict[str, Split] = {
        name: FeatureSplit(
            documents[name],
            labels.get(name),
            num_labels=num_labels,
            skip_bad=skip_bad,
            max_problems=max_problems,
        )
        for name in documents
    }
    return splits, FeatureShape(num_features, num_labels)


def _agreed(what: str, said: dict[Path, int]) -> int:
    """Return the one number that all files say.

    Raises:
        DataError: They say several.
    """
    numbers = set(said.values())
    if len(numbers) > 1:
        listed = ", ".join(f"{path.name} {number}" for path, number in said.items())
        raise DataError(
            f"{next(iter(said)).parent}: the headers differ in the number of {what} ({listed}); "
            "wanted files of one corpus"
        )
    return numbers.pop()


def read_names(path: Path, num_names: int, what: str, max_problems: int) -> tuple[str, ...]:
    """Return the names in a file, one a line.

    Args:
        path: The file.
        num_names: How many the headers of the corpus want.
        what: What is named: "label" or "feature".
        max_problems: How many lines that can't be used are listed.

    Raises:
        DataError: A line is blank or no UTF-8, or there is another number of them.
    """
    names = []
    problems = ProblemList(path, max_problems)
    for number, line in lines(path):
        try:
            names.append(line.decode().strip())
        except UnicodeDecodeError as error:
            problems.add(Problem(number, f"not UTF-8 (byte 0x{line[error.start]:02x})"))
            continue
        if not names[-1]:
            problems.add(Problem(number, "blank; wanted a name"))
    if problems.num_problems:
        listed = list_problems(problems.kept, problems.num_problems)
        raise DataError(
            f"{path}: {problems.num_problems} {what} names can't be used; mend them, for a "
            f"{what} can't be skipped\n{listed}"
        )
    if len(names) != num_names:
        raise DataError(
            f"{path}: {len(names)} {what} names, but the headers say {num_names} {what}s; wanted "
            f"the name of {what} i on line i + 1"
        )
    return tuple(names)
