"""Which files of a folder are its corpus, and in which of the formats they are."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from longtail.models.corpus.annif import FULL_TEXT
from longtail.models.corpus.arrow import ARROW, PARQUET, check_all_shards
from longtail.models.corpus.columns import RECOGNISED, CorpusOptions
from longtail.models.corpus.documents import read_documents
from longtail.models.corpus.forms import (
    ALIASES,
    FORMATS,
    SPLIT_NAMES,
    DocumentSource,
    Format,
    register,
)
from longtail.models.corpus.line_forms import (
    CSV,
    EXTREME_CLASSIFICATION,
    JSON_LINES,
    PLAIN_TEXT,
    TSV,
)
from longtail.models.corpus.raw import (
    LEAST_DIVIDED,
    LEAST_GROUPS,
    Division,
    RawDocument,
    division_of,
)
from longtail.models.errors import DataError

logger = logging.getLogger(__name__)

_MAX_SHOWN = 5
for _form in (EXTREME_CLASSIFICATION, JSON_LINES, CSV, TSV, PARQUET, ARROW, FULL_TEXT):
    register(_form)


@dataclass(frozen=True, slots=True)
class CorpusFiles:
    """The files of a corpus.

    Attributes:
        folder: Where they are; or the only one.
        form: Their format.
        splits: Documents of each split there is, in the order of `SPLIT_NAMES`.
        labels: The label file, where there is one.
        options: What was said of them.
        remark: How the splits were made, where the files have none.
        is_given: Whether a program gave the documents, and the files are its copy of them.
    """

    folder: Path
    form: Format
    splits: Mapping[str, DocumentSource]
    labels: Path | None
    options: CorpusOptions = RECOGNISED
    remark: str | None = None
    is_given: bool = False

    def called(self, name: str) -> CorpusFiles:
        """Return these files as documents that a program gave, which messages call by this name."""
        place = Path(name)
        splits = {split: replace(source, place=place) for split, source in self.splits.items()}
        return replace(self, folder=place, splits=splits, remark=None, is_given=True)

    @property
    def paths(self) -> list[Path]:
        """All of them, sorted."""
        documents = {path for source in self.splits.values() for path in source.paths}
        return sorted(documents | ({self.labels} if self.labels else set()))

    def fingerprint(self) -> str:
        """Return the SHA-256, in hexadecimal, over the names and bytes of these files.

        What was said of them, and that they are divided, is part of it: the same bytes read in
        another way are another corpus.
        """
        combined = hashlib.sha256()
        for path in self.paths:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            combined.update(f"{self._name_of(path)}\n{digest}\n".encode())
        if given := self.options.to_json():
            combined.update(f"{json.dumps(given, sort_keys=True)}\n".encode())
        if self.division:
            by_id = b" of ids" if self.division == "id" else b""
            combined.update(b"divided by a hash" + by_id + b"\n")
        return combined.hexdigest()

    @property
    def division(self) -> Division | None:
        """What the splits of one file follow from; None: it is not divided."""
        return next(iter(self.splits.values())).division

    def _name_of(self, path: Path) -> str:
        is_below = self.folder in path.parents
        return path.relative_to(self.folder).as_posix() if is_below else path.name


def find_files(
    data: Path, options: CorpusOptions = RECOGNISED, division: Division | None = None
) -> CorpusFiles:
    """Return the files of a corpus; those of its folder that belong to no format are left alone.

    Args:
        data: A folder; or one file, whose documents are then divided by a hash.
        options: What is said of the files.
        division: What one file is divided by; None: by ids, where documents have some.
    """
    found = [] if data.is_file() else list(_sources_in(data, options))
    if not found:
        return _one_source(data, options, division)
    form = found[0][1].form
    if any(source.form is not form for _, source in found):
        names = ", ".join(source.place.name for _, source in found)
        raise DataError(f"{data}: files of two formats ({names}); keep those of one")
    _check_options(data, form, options)
    splits = dict(found)
    if len(splits) < len(found):
        names = ", ".join(source.place.name for _, source in found)
        raise DataError(f"{data}: a split is there twice ({names}); keep one of each")
    labels = _label_file(data, form, options)
    if form.is_indexed and not labels:
        raise DataError(without_labels(data, form))
    _warn_of_filters(data)
    return CorpusFiles(data, form, splits, labels, options)


def without_labels(data: Path, form: Format) -> str:
    """Describe the error of a corpus that lacks the label file which it needs."""
    return f"{data}: no labels; expected {either(form.label_files)} (also with .gz)"


def either(names: tuple[str, ...]) -> str:
    """Return the first two names as a choice."""
    return " or ".join(names[:2])


# Folders with a file, or a folder, for each split.


def _sources_in(folder: Path, options: CorpusOptions) -> Iterator[tuple[str, DocumentSource]]:
    """Yield the files found of each format and split."""
    for form in FORMATS:
        for name in SPLIT_NAMES:
            found = _one_of(folder, form.split_files.get(name, ()), is_text=form.is_text)
            if found is not None:
                yield name, DocumentSource(found, form, (found,), options)
            for alias in ALIASES[name]:
                for paths in _shards(folder, form, alias):
                    shards = paths[0].with_name(f"{alias}-*{paths[0].suffix}")
                    place = paths[0] if len(paths) == 1 else shards
                    yield name, DocumentSource(place, form, paths, options)
                if form.folder_files and (paths := tuple(form.folder_files(folder / alias))):
                    yield name, DocumentSource(folder / alias, form, paths, options)


def _shards(folder: Path, form: Format, alias: str) -> Iterator[tuple[Path, ...]]:
    for where in form.shard_folders:
        pattern = f"{alias}-[0-9]*-of-[0-9]*{form.suffixes[0]}"
        if paths := tuple(sorted((folder / where).glob(pattern))):
            check_all_shards(paths)
            yield paths


# One file, or a folder with documents and no splits.


def _one_source(data: Path, options: CorpusOptions, division: Division | None) -> CorpusFiles:
    """Return a corpus whose splits are made."""
    source = _whole_source(data, options)
    _check_options(data, source.form, options)
    documents = (x for x in read_documents(source) if isinstance(x, RawDocument))
    if found := division_of(documents):
        division = division or found
        splits = {name: replace(source, part=name, division=division) for name in SPLIT_NAMES}
        hashed = "text"  # also of documents without ids, whatever those of the training had
        if division == found == "id":
            hashed = "group" if options.group_column else "id"
        remark = (
            f"its documents are divided by a hash of their {hashed} into train (8 of 10), dev "
            "and test (1 each), the same ones whenever it is read"
        )
    else:
        splits = {"train": source}
        few_groups = f" or {LEAST_GROUPS} groups" if options.group_column else ""
        remark = (
            f"fewer than {LEAST_DIVIDED} different texts{few_groups}, so no dev and test documents "
            "are set apart: all are trained on, and none are left to measure on"
        )
    labels = _label_file(data, source.form, options)
    if source.place.parent == data:
        remark = f"{source.place.name} is taken, the only file in it that may be a corpus; {remark}"
    return CorpusFiles(data, source.form, splits, labels, options, remark)


def _whole_source(data: Path, options: CorpusOptions) -> DocumentSource:
    if data.is_file():
        name = (_plain_name(data),)
        if any(x.is_indexed and name in x.split_files.values() for x in FORMATS):
            raise DataError(f"{data}: its labels are in another file; give the folder of both")
        if form := _form_of_file(data):
            return DocumentSource(data, form, (data,), options)
        known = ", ".join(suffix for form in FORMATS for suffix in form.suffixes)
        raise DataError(
            f"{data}: not a corpus by its name; expected a folder, or a file in {known}"
        )
    if not data.is_dir():
        is_uri = data.parts[:1] and data.parts[0].endswith(":")
        uri = "got a URI; expected a path, as /data/train.csv; copy it first"
        missing = "there is no such file or folder; check the path"
        raise DataError(f"{data}: {uri if is_uri else missing}")
    for form in FORMATS:
        if form.folder_files and (paths := tuple(form.folder_files(data))):
            return DocumentSource(data, form, paths, options)
    others = _other_corpora(data)
    if len(others) == 1 and (form := _form_of_file(others[0])):
        return DocumentSource(others[0], form, (others[0],), options)
    looked_for = "; ".join(
        f"{form.name}: {', '.join(names[0] for names in form.split_files.values())}"
        for form in FORMATS
        if form.split_files and form.is_text
    )
    raise DataError(
        f"{data}: no documents; looked for {looked_for} (each also with .gz); Parquet; and folders "
        "train, dev, test of Arrow files, or of Annif's full texts with their subjects"
        f"{_advice_on(others)}"
    )


def _plain_name(path: Path) -> str:
    return path.name.lower().removesuffix(".gz")


def _form_of_file(path: Path) -> Format | None:
    """Return the form of a single file that is a corpus, by its name; None where it is none."""
    name = _plain_name(path)
    is_form = (
        form
        for form in FORMATS
        if name.endswith(form.suffixes) and (form.is_text or name == path.name.lower())
    )
    return next(is_form, None)


def _other_corpora(folder: Path) -> list[Path]:
    """Return the files of a folder that may be corpora by another name; `.json` may be anything."""
    known = {name for form in FORMATS for name in form.label_files}
    return [
        path
        for path in sorted(folder.iterdir())
        if path.is_file()
        and not path.name.startswith(".")
        and _form_of_file(path) is not None
        and _plain_name(path) not in known
        and not _plain_name(path).endswith(".json")
    ]


def _advice_on(others: list[Path]) -> str:
    if not others:
        return ""
    names = ", ".join(repr(path.name) for path in others[:_MAX_SHOWN])
    more = ", ..." if len(others) > _MAX_SHOWN else ""
    return f"; it holds {names}{more}: call them so, or give one of them itself: '{others[0]}'"


# Documents to be labelled.


def find_unlabelled(data: Path, options: CorpusOptions = RECOGNISED) -> DocumentSource:
    """Return documents whose labels, where they have some, are not read.

    Args:
        data: A file, JSON lines where its name says nothing else; or a folder with one split, or
            with texts in files.
        options: Columns that are named.
    """
    if data.is_dir():
        source = _only_source(data, options)
    else:
        form = PLAIN_TEXT if _plain_name(data).endswith(PLAIN_TEXT.suffixes) else JSON_LINES
        source = DocumentSource(data, _form_of_file(data) or form, (data,), options)
    _check_options(data, source.form, options)
    paths = tuple(x for x in source.paths if x.name.endswith(source.form.document_suffix))
    return replace(source, paths=paths, reads_labels=False)


def _only_source(folder: Path, options: CorpusOptions) -> DocumentSource:
    splits = [source for _, source in _sources_in(folder, options)]
    if len(splits) > 1 or any(source.form.shard_folders for source in splits):
        names = ", ".join(f"'{source.place}'" for source in splits)
        raise DataError(f"{folder}: a folder with several splits or Parquet; give one: {names}")
    for form in () if splits or _other_corpora(folder) else FORMATS:
        texts = tuple(sorted(folder.glob(f"*{form.document_suffix}")))
        if form.document_suffix and texts:
            return DocumentSource(folder, form, texts, options)
    return splits[0] if splits else _whole_source(folder, options)


# The rest.


def _check_options(data: Path, form: Format, options: CorpusOptions) -> None:
    """Refuse options of columns where the files have no columns."""
    given = options.names_columns or options.label_delimiter or options.one_row_per_label
    if given and form.table is None:
        raise DataError(
            f"{data}: {form.name} has no columns to choose; leave out --text-columns, "
            "--label-column, --label-delimiter, --id-column, --group-column and --one-row-per-label"
        )


def _label_file(data: Path, form: Format, options: CorpusOptions) -> Path | None:
    """Return the label file: the one that is named, or else that of the folder, if it has one."""
    found = options.vocabulary
    if found is None and data.is_dir():
        found = _one_of(data, form.label_files)
    if found is None and options.language is not None:
        raise DataError(
            f"{data}: got --language {options.language} and no label file; name one with "
            "--vocabulary, or leave the language out"
        )
    return found


def _warn_of_filters(folder: Path) -> None:
    # Label pairs that the repository leaves out when it measures some of its data sets.
    for path in sorted(folder.glob("filter_labels_*.txt")):
        logger.warning(
            "%s is not applied: metrics can't be compared with those published for the filtered "
            "data",
            path,
        )


def _one_of(folder: Path, names: tuple[str, ...], *, is_text: bool = True) -> Path | None:
    found = [path for name in names if (path := _existing(folder, name, is_text=is_text))]
    if len(found) > 1:
        raise DataError(f"{folder}: both {found[0].name} and {found[1].name}; keep one of them")
    return found[0] if found else None


def _existing(folder: Path, name: str, *, is_text: bool) -> Path | None:
    # The file of this name, plain or compressed.
    names = [name, f"{name}.gz"] if is_text else [name]
    found = [folder / each for each in names if (folder / each).is_file()]
    if len(found) > 1:
        raise DataError(f"{folder}: both {name} and {name}.gz; keep one of them")
    return found[0] if found else None
