"""The formats of corpora, and the names that their files have.

- Extreme Classification Repository, raw text: `trn.json`, `dev.json`, `tst.json`, `lbl.json`.
  Documents `{"uid", "title", "content", "target_ind": [label index, ...]}`. Line i of the label
  file, from 0, is label i: `{"uid", "title"}`, and `content`, where given, describes the label.
- JSON lines: `train.jsonl`: one object a line; labels are a list of ids and names, or, as Annif
  writes them, of objects with a `uri` or a `label`.
- CSV and TSV: `train.csv`, `train.tsv`, with a header; the delimiter is a comma, a semicolon or a
  tab, whichever gives the header its columns. A cell of labels is a list as JSON, Python or
  pandas write it, or ids and names between semicolons (or what `CorpusOptions.label_delimiter`
  says), or URIs in angle brackets.
- Annif's short texts: `train.tsv` without a header: a text, a tab, URIs in angle brackets or plain
  ids, spaces between them.
- Annif's full texts: a folder `train` of `NAME.txt` files, each with its subjects in `NAME.tsv`
  (URI, tab, label) or `NAME.key` (a label a line).
- Parquet: `train.parquet`, or shards `train-00000-of-00002.parquet`, there or in the folder `data`.
- Hugging Face `datasets`: folders `train` of Arrow files, as its `save_to_disk` writes them.

The dev split may also be called `validation`, `valid` or `val`, but for the first form. Text files
may be gzip-compressed, with `.gz` added to the name; text is UTF-8, with or without a byte order
mark, or UTF-16. Which columns hold text and labels: `longtail.models.corpus.columns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from longtail.models.corpus.columns import RECOGNISED, CorpusOptions
from longtail.models.corpus.raw import Division, Spool
from longtail.models.errors import ConfigError, ignore
from longtail.models.files.rows import Fields, Row

SPLIT_NAMES = ("train", "dev", "test")
ALIASES: Mapping[str, tuple[str, ...]] = {
    "train": ("train",),
    "dev": ("dev", "validation", "valid", "val"),
    "test": ("test",),
}
"""Names that files and folders of each split may have."""
LABEL_FILES = tuple(
    f"{name}{suffix}"
    for name in ("labels", "vocabulary")
    for suffix in (".jsonl", ".csv", ".tsv", ".ttl", ".nt", ".rdf", ".jsonld")
)
"""Names that the label file of a corpus may have; messages list the first two."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """The opened files of a split, whose documents have named columns.

    Attributes:
        rows: Reads at least the given columns: the number of each document and its fields.
        names: Names of all columns; None where there is no header, and fields are as for `rows`.
        remarks: Sentences about how the files are read.
    """

    rows: Callable[[Sequence[str]], Iterator[Row]]
    names: Sequence[str] | None
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Format:
    """One way to store a corpus in a folder; it has `rows` or `table`.

    Attributes:
        name: What people call it.
        split_files: Names, without `.gz`, that the file of each split may have.
        folder_files: Finds the documents' files in a folder; a split, or the whole corpus, may be
            such a folder.
        shard_folders: Folders that may hold shards of a split, `train-00000-of-00002.SUFFIX`.
        label_files: Names, without `.gz`, that the label file may have.
        suffixes: Endings, without `.gz`, of a single file that is a corpus.
        document_suffix: Ending of files that hold one document each; other files hold labels.
        is_text: Whether its files may be gzip-compressed.
        is_indexed: Whether labels are line numbers of the label file, and both files have the
            fields of the Extreme Classification Repository.
        is_csv: Whether its rows are those of a `CsvTable`, and labels stand between delimiters.
        has_own_fields: Whether each row has columns of its own.
        rows: Reads the files of a split: for each document its number and its fields "text",
            "labels" (a list of ids or names) and, if it has one, "id".
        table: Opens the files of a split whose columns can be chosen.
        line: Turns a line, without its end, into a request of `longtail predict`, JSON or fields;
            empty for a line without one. None: rows are read.
    """

    name: str
    split_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    folder_files: Callable[[Path], Sequence[Path]] | None = None
    shard_folders: tuple[str, ...] = ()
    label_files: tuple[str, ...] = LABEL_FILES
    suffixes: tuple[str, ...] = ()
    document_suffix: str = ""
    is_text: bool = True
    is_indexed: bool = False
    is_csv: bool = False
    has_own_fields: bool = False
    rows: Callable[[Sequence[Path]], Iterator[Row]] | None = None
    table: Callable[[DocumentSource], TableRows] | None = None
    line: Callable[[bytes], bytes | Fields] | None = None


@dataclass(frozen=True, slots=True)
class DocumentSource:
    """Where the documents of a split lie, and how they are read.

    Attributes:
        place: The file, or what stands for its files, as messages name it.
        form: The files' format.
        paths: The files, in the order in which they are read.
        options: What was said of them.
        part: Name of the split that it is of these documents, by a hash; None: all of them.
        division: What is hashed; None: the documents are not divided.
        reads_labels: Whether labels are read, and files must have some.
        progress: Called with the bytes of text files with rows that were read since.
        spools: Keep the documents, with a label file and without; parts of one file share them.
    """

    place: Path
    form: Format
    paths: tuple[Path, ...]
    options: CorpusOptions = RECOGNISED
    part: str | None = None
    division: Division | None = None
    reads_labels: bool = True
    progress: Callable[[int], object] = field(default=ignore, compare=False, repr=False)
    spools: Mapping[bool, Spool] = field(
        default_factory=lambda: {True: Spool(), False: Spool()}, compare=False, repr=False
    )

    @property
    def may_have_delimiter(self) -> bool:
        """Whether labels may stand between marks, and it is not said between which."""
        options, form = self.options, self.form
        is_told = options.label_delimiter is not None or options.one_row_per_label
        return form.table is not None and not form.has_own_fields and not is_told

    @property
    def is_divided_at_semicolons(self) -> bool:
        """Whether labels are taken to stand between semicolons, for want of another word."""
        return self.form.is_csv and self.may_have_delimiter


def named(suffix: str) -> dict[str, tuple[str, ...]]:
    """Return the names that the files of each split have with a suffix."""
    return {x: tuple(f"{name}{suffix}" for name in names) for x, names in ALIASES.items()}


FORMATS: list[Format] = []
"""All formats; `longtail.models.corpus.files` registers those that are included."""


def register(form: Format) -> Format:
    """Add a form; corpora may then be in it."""
    is_read = form.rows is not None or form.table is not None
    if not is_read or any(form.name == each.name for each in FORMATS):
        raise ConfigError(
            f"corpus format {form.name!r}: expected a name that no other has, and `rows` or `table`"
        )
    FORMATS.append(form)
    return form
