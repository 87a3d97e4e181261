"""What a file tells of a document, and where the documents of a split lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from longtail.models.files.bad_lines import BadLine
from longtail.training.formats.forms import CSV, EXTREME_CLASSIFICATION, TSV, Format
from longtail.training.formats.options import RECOGNISED, CorpusOptions

Division = Literal["id", "text"]
"""What the splits of one file follow from: a hash of ids, of documents without one the text; or of
texts."""


@dataclass(frozen=True, slots=True)
class RawDocument:
    """A document as its line has it, its labels not yet looked up.

    Attributes:
        line: Number of its line, from 1; of a full text, its number in the order of the names.
        id: Its identifier; None where it has none.
        text: What is to be tagged; not blank.
        labels: Label indices, or ids and names.
        group: What it has in common with others, as a patient; None where no column is named.
    """

    line: int
    id: str | None
    text: str
    labels: tuple[int, ...] | tuple[str, ...]
    group: str | None = None


@dataclass(frozen=True, slots=True)
class EmptyText(BadLine):
    """A line whose text is blank."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the documents of a split lie, and how they are read.

    Attributes:
        place: The file, or what stands for its files, as messages name it.
        form: Of the files.
        paths: The files, in the order in which they are read.
        options: What was said of them.
        part: Name of the split that it is of these documents, by a hash (see
            `longtail.training.formats.hashed_parts`); None: all of them.
        division: What is hashed; None: the documents are not divided.
    """

    place: Path
    form: Format
    paths: tuple[Path, ...]
    options: CorpusOptions = RECOGNISED
    part: str | None = None
    division: Division | None = None

    @property
    def is_divided_at_semicolons(self) -> bool:
        """Whether labels are taken to stand between semicolons, for want of another word."""
        options = self.options
        is_told = options.label_delimiter is not None or options.one_row_per_label
        return self.form in (CSV, TSV) and not is_told

    @property
    def is_indexed(self) -> bool:
        """Whether labels are the numbers of lines of the label file."""
        return self.form is EXTREME_CLASSIFICATION
