"""Documents in memory, written as a corpus of JSON lines, so that they are trained on like any."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

from longtail.models.corpus.columns import RECOGNISED, CorpusOptions, find_columns
from longtail.models.corpus.files import find_files
from longtail.models.corpus.label_cells import labels_of_text
from longtail.models.errors import DataError, RequestError
from longtail.models.files.durable import write_lines_durably
from longtail.models.interface.given_texts import is_frame, is_missing, joined, texts_of
from longtail.models.labels.cells import labels_of_cell
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.data.labels import warn_of_delimiter

DOCUMENTS_NAME = "documents.jsonl"
"""A file of this name is divided into splits; "test.jsonl" is a test split."""
OF_FRAMES = frozenset({"text_columns", "label_column", "label_delimiter", "id_column"})

LabelTexts = Mapping[Any, str | Mapping[str, Any]]
"""By label, its name, or the fields of a label file: name, description, alternative_names, parents.
"""


@dataclass(frozen=True, slots=True)
class Documents:
    """Texts with the ids or names of their labels.

    Attributes:
        texts: The documents' texts.
        labels: Labels of each document.
        ids: Id of each document, None where it has none; empty where no document has one.
        text_columns: Columns of a data frame that the texts are made of; empty where there is none.
        options: By which a data frame was read.
        name: What messages call them.
    """

    texts: Sequence[str]
    labels: Sequence[Sequence[str]]
    ids: Sequence[str | None] = ()
    text_columns: tuple[str, ...] = ()
    options: CorpusOptions = RECOGNISED
    name: str = "the documents"


def documents_of(data: Any, options: CorpusOptions = RECOGNISED) -> Documents:
    """Return the documents of a data frame, or of a pair of texts and lists of labels.

    Args:
        data: A data frame, whose columns and cells are read as those of a CSV file; cells may hold
            lists of labels. Or a pair of those.
        options: Names other columns of a data frame.
    """
    if is_frame(data):
        return _documents_of_frame(data, options)
    if options != RECOGNISED:
        raise DataError("corpus names columns, and the documents have none; leave it out")
    if isinstance(data, tuple) and len(data) == 2:
        return _checked(data[0], list(data[1]))
    raise DataError(
        f"data is a {type(data).__name__}; expected the folder of a corpus, a data frame with "
        "the columns 'text' and 'labels', or the pair (texts, labels)"
    )


def _documents_of_frame(frame: Any, options: CorpusOptions) -> Documents:
    names = [str(name) for name in frame.columns]
    if unused := set(options.to_json()) - OF_FRAMES:
        raise DataError(
            f"corpus has {', '.join(sorted(unused))}, which are for files; a data frame takes "
            f"{', '.join(sorted(OF_FRAMES))}"
        )
    try:
        columns = find_columns(names, options)
        for name in (*columns.text, columns.labels):
            if names.count(name) != 1:
                raise DataError(f"column {name!r} is there {names.count(name)} times")
    except DataError as error:
        raise DataError(
            f"the data frame: {error}; options are fields of corpus=longtail.CorpusOptions("
            "label_column=..., text_columns=...)"
        ) from error
    cells = (list(frame[name]) for name in columns.text)
    texts = [joined(parts) for parts in zip(*cells, strict=True)]
    labels = list(map(_cell, frame[columns.labels]))
    read = partial(labels_of_text, column=columns.labels, options=options)
    found = _checked(texts, labels, read)
    if options.label_delimiter is None and any(isinstance(x, str) for x in labels):
        counts = Counter(label for row in found.labels for label in row)
        warn_of_delimiter("the data frame", counts, sum(map(bool, found.labels)))
    ids = columns.id if names.count(columns.id or "") == 1 else None
    return replace(
        found,
        ids=[] if ids is None else [_id_of(value) for value in frame[ids]],
        text_columns=columns.text,
        options=options,
        name="the data frame",
    )


def _cell(value: Any) -> Any:
    """Return a cell of labels, an empty one or a number as a list."""
    return [] if is_missing(value) else [value] if isinstance(value, Integral) else value


def _id_of(value: object) -> str | None:
    """Return the id in a cell as a file has it: pandas makes floats of whole numbers with gaps."""
    if is_missing(value):
        return None
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if is_whole else value).strip() or None  # type: ignore[call-overload]


def _checked(
    texts: Any, labels: Sequence[Any], read: Callable[[str], Any] = labels_of_cell
) -> Documents:
    """Return texts and labels as documents; cells of text are taken apart by `read`."""
    try:
        found = texts_of(texts)
    except RequestError as error:
        raise DataError(str(error)) from error
    if len(found) != len(labels):
        raise DataError(
            f"got {len(found)} texts and the labels of {len(labels)} documents; expected as many"
        )
    return Documents(found, [_labels_of(row, number, read) for number, row in enumerate(labels)])


def write_documents(
    path: Path,
    texts: Iterable[str],
    labels: Iterable[Sequence[str]],
    ids: Sequence[str | None] = (),
) -> None:
    """Write a split as JSON lines.

    Args:
        path: The file's path; its folder is there.
        texts: The documents' texts.
        labels: Ids or names of each document's labels.
        ids: The documents' ids, None where one has none; empty: none has one.
    """
    pairs = zip(texts, labels, strict=True)
    lines: Iterable[dict[str, Any]] = ({"text": text, "labels": list(x)} for text, x in pairs)
    if ids:
        lines = ({"id": x} | line for x, line in zip(ids, lines, strict=True))
    write_lines_durably(path, map(_line, lines), is_private=True)


def write_labels(path: Path, ids: Iterable[str], texts: LabelTexts) -> None:
    """Write a label file; a label without a text is named by its id."""
    write_lines_durably(path, (_line(_label(each, texts.get(each, each))) for each in ids))


def kept_corpus(work: Path, write: Callable[[Path], None], name: str) -> Dataset:
    """Write a corpus into a folder named by its content, so that a later run finds it again.

    Args:
        work: Folder of the run's work; made where it is not there.
        write: Writes the files of the corpus into the folder that it is given.
        name: What messages call it.
    """
    incoming = work / f".incoming-corpus-{os.getpid()}"
    shutil.rmtree(incoming, ignore_errors=True)  # of a killed process that had the same id
    incoming.mkdir(mode=0o700, parents=True)  # it holds texts
    try:
        write(incoming)
        folder = work / f"corpus-{find_files(incoming).fingerprint()[:16]}"
        if not folder.exists():
            incoming.rename(folder)
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    return open_dataset(folder, called=name)


def write_corpus(
    folder: Path,
    documents: Documents,
    label_texts: LabelTexts | None = None,
    name: str = DOCUMENTS_NAME,
) -> None:
    """Write documents as a corpus.

    Args:
        folder: Folder of the corpus.
        documents: Documents of the corpus.
        label_texts: By label as the documents call it; labels that no document carries are labels
            of the model, too. None: labels are named by what the documents call them.
        name: Name of the documents' file; by default they are divided as any file is.
    """
    write_documents(folder / name, documents.texts, documents.labels, documents.ids)
    if label_texts is not None:
        texts = by_id(label_texts)
        counts = Counter(label for row in documents.labels for label in dict.fromkeys(row))
        others = sorted(counts.keys() - texts.keys(), key=lambda label: (-counts[label], label))
        write_labels(folder / "labels.jsonl", [*texts, *others], texts)


def by_id(label_texts: LabelTexts | None) -> dict[str, str | Mapping[str, Any]]:
    """Return the texts of labels by their ids, which are the keys as text."""
    return {str(key).strip(): text for key, text in (label_texts or {}).items()}


def _labels_of(row: Any, document: int, read: Callable[[str], Any]) -> list[str]:
    try:
        cell = read(row) if isinstance(row, str) else row
    except DataError as error:
        raise DataError(f"labels of document {document}: {error}") from error
    if not isinstance(cell, Iterable) or isinstance(cell, bytes):
        raise DataError(
            f"labels of document {document}: got {row!r:.40} ({type(row).__name__}), expected a "
            "list of labels, or labels between semicolons"
        )
    labels = ["" if is_missing(label) else str(label).strip() for label in cell]
    if "" in labels:
        raise DataError(f"labels of document {document}: got a blank label; expected a name or id")
    return labels


def _label(label_id: str, text: str | Mapping[str, Any]) -> dict[str, Any]:
    fields = {"name": text} if isinstance(text, str) else dict(text)
    return {"id": label_id, "name": label_id, **fields}


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(content)
