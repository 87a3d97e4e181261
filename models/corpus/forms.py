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
from dataclasses import dataclass
from pathlib import Path

from longtail.models.errors import ConfigError
from longtail.models.files.rows import Row

SPLIT_NAMES = ("train", "dev", "test")
ALIASES: Mapping[str, tuple[str, ...]] = {
    "train": ("train",),
    "dev": ("dev", "validation", "valid", "val"),
    "test": ("test",),
}
"""Names that files and folders of each split may have."""


@dataclass(frozen=True, slots=True)
class Format:
    """One way to store a corpus in a folder.

    Attributes:
        name: What people call it.
        split_files: Names, without `.gz`, that the file of each split may have; empty where a split
            is a folder.
        label_files: Names, without `.gz`, that the label file may have, as messages list them.
        suffixes: Suffixes of a single file that is a corpus, without `.gz`.
        has_columns: Whether its columns, or fields, can be chosen.
        is_text: Whether its files may be gzip-compressed.
        rows: Reads the files of a split: for each document its number and its fields "text",
            "labels" (a list of ids or names) and, if it has one, "id". None: read by
            `longtail.models.corpus.documents`.
    """

    name: str
    split_files: Mapping[str, tuple[str, ...]]
    label_files: tuple[str, ...] = ("labels.jsonl", "labels.csv")
    suffixes: tuple[str, ...] = ()
    has_columns: bool = True
    is_text: bool = True
    rows: Callable[[Sequence[Path]], Iterator[Row]] | None = None


def _named(*suffixes: str) -> dict[str, tuple[str, ...]]:
    return {
        split: tuple(f"{name}{suffix}" for name in names for suffix in suffixes)
        for split, names in ALIASES.items()
    }


EXTREME_CLASSIFICATION = Format(
    "Extreme Classification Repository",
    {"train": ("trn.json",), "dev": ("dev.json",), "test": ("tst.json",)},
    ("lbl.json",),
    has_columns=False,
)
JSON_LINES = Format("JSON lines", _named(".jsonl"), suffixes=(".jsonl", ".json", ".ndjson"))
CSV = Format("CSV", _named(".csv"), suffixes=(".csv",))
TSV = Format("TSV", _named(".tsv"), suffixes=(".tsv",))
PARQUET = Format("Parquet", _named(".parquet"), suffixes=(".parquet",), is_text=False)
ARROW = Format("Hugging Face datasets", {}, suffixes=(".arrow",), is_text=False)
FULL_TEXT = Format("Annif full texts", {}, has_columns=False, is_text=False)
PLAIN_TEXT = Format("Plain text", {}, suffixes=(".txt",), has_columns=False)
"""A text a line, without labels: no corpus."""

FORMATS = [EXTREME_CLASSIFICATION, JSON_LINES, CSV, TSV, PARQUET, ARROW, FULL_TEXT]


def register(form: Format) -> Format:
    """Add a form with its own `rows`; corpora may then be in it."""
    if form.rows is None or any(form.name == each.name for each in FORMATS):
        raise ConfigError(
            f"corpus format {form.name!r}: expected a name that no other has, and `rows`"
        )
    FORMATS.append(form)
    return form


OTHER_LABEL_FILES = (
    *(f"labels{suffix}" for suffix in (".tsv", ".ttl", ".nt", ".rdf", ".jsonld")),
    *(
        f"vocabulary{suffix}"
        for suffix in (".jsonl", ".csv", ".tsv", ".ttl", ".nt", ".rdf", ".jsonld")
    ),
)
"""Names of label files that any form but the repository's may have besides its own."""
