"""Documents in memory, written as a corpus of JSON lines, so that they are trained on like any."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import DataError, RequestError
from models.files.durable import write_lines_durably
from models.interface.given_texts import is_frame, texts_of
from models.labels.cells import labels_of_cell
from training.data.dataset import Dataset, open_dataset

LabelTexts = Mapping[Any, str | Mapping[str, Any]]
"""By label, its name, or the fields of a label file: name, description, alternative_names, parents.
"""


@dataclass(frozen=True, slots=True)
class Documents:
    """Texts with the ids or names of their labels."""

    texts: Sequence[str]
    labels: Sequence[Sequence[str]]


def documents_of(data: Any) -> Documents:
    """Return the documents of a data frame, or of a pair of texts and lists of labels.

    Args:
        data: A data frame with the columns `text` (or `title` and `content`) and `labels`, which
            holds lists, or ids and names between semicolons as in CSV; or a pair of those.

    Raises:
        DataError: It is neither, they are not equally many, or a text or label can't be used.
    """
    if is_frame(data):
        names = [str(name) for name in data.columns]
        if names.count("labels") != 1:
            raise DataError(
                f"the data frame has the columns {', '.join(names)}; expected 'labels', too, once"
            )
        texts, labels = data, list(data["labels"])
    elif isinstance(data, tuple) and len(data) == 2:
        texts, labels = data[0], list(data[1])
    else:
        raise DataError(
            f"data is a {type(data).__name__}; expected the folder of a corpus, a data frame with "
            "the columns 'text' and 'labels', or the pair (texts, labels)"
        )
    try:
        found = texts_of(texts)
    except RequestError as error:
        raise DataError(str(error)) from error
    if len(found) != len(labels):
        raise DataError(
            f"got {len(found)} texts and the labels of {len(labels)} documents; expected as many"
        )
    return Documents(found, [_labels_of(row, number) for number, row in enumerate(labels)])


def write_documents(path: Path, texts: Iterable[str], labels: Iterable[Sequence[str]]) -> None:
    """Write a split as JSON lines.

    Args:
        path: Of the file; its folder is there.
        texts: Of the documents.
        labels: Ids or names of each document's labels.
    """
    pairs = zip(texts, labels, strict=True)
    write_lines_durably(
        path, (_line({"text": text, "labels": list(x)}) for text, x in pairs), is_private=True
    )


def write_labels(path: Path, ids: Iterable[str], texts: LabelTexts) -> None:
    """Write a label file; a label without a text is named by its id.

    Args:
        path: Of the file; its folder is there.
        ids: Of the labels, in their order.
        texts: By id.
    """
    write_lines_durably(path, (_line(_label(each, texts.get(each, each))) for each in ids))


def kept_corpus(work: Path, write: Callable[[Path], None]) -> Dataset:
    """Write a corpus into a folder named by its content, so that a later run finds it again.

    Args:
        work: Folder of the run's work; made where it is not there.
        write: Writes the files of the corpus into the folder that it is given.

    Raises:
        DataError: A label can't be used.
    """
    incoming = work / f".incoming-corpus-{os.getpid()}"
    shutil.rmtree(incoming, ignore_errors=True)  # of a killed process that had the same id
    incoming.mkdir(mode=0o700, parents=True)  # it holds texts
    try:
        write(incoming)
        folder = work / f"corpus-{open_dataset(incoming).fingerprint[:16]}"
        if not folder.exists():
            incoming.rename(folder)
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    return open_dataset(folder)


def write_training(
    folder: Path, documents: Documents, label_texts: LabelTexts | None = None
) -> None:
    """Write documents as the training split of a corpus.

    Args:
        folder: Of the corpus.
        documents: To train on.
        label_texts: By label as the documents call it; labels that no document carries are labels
            of the model, too. None: labels are named by what the documents call them.
    """
    write_documents(folder / "train.jsonl", documents.texts, documents.labels)
    if label_texts is not None:
        texts = by_id(label_texts)
        counts = Counter(label for row in documents.labels for label in dict.fromkeys(row))
        others = sorted(counts.keys() - texts.keys(), key=lambda label: (-counts[label], label))
        write_labels(folder / "labels.jsonl", [*texts, *others], texts)


def by_id(label_texts: LabelTexts | None) -> dict[str, str | Mapping[str, Any]]:
    """Return the texts of labels by their ids, which are the keys as text."""
    return {str(key).strip(): text for key, text in (label_texts or {}).items()}


def _labels_of(row: Any, document: int) -> list[str]:
    """Return the labels of a cell.

    Raises:
        DataError: It holds something else than labels.
    """
    try:
        cell = labels_of_cell(row) if isinstance(row, str) else row
    except DataError as error:
        raise DataError(f"labels of document {document}: {error}") from error
    if not isinstance(cell, Iterable) or isinstance(cell, bytes):
        raise DataError(
            f"labels of document {document}: got {row!r:.40} ({type(row).__name__}), expected a "
            "list of labels, or labels between semicolons"
        )
    return [str(label).strip() for label in cell]


def _label(label_id: str, text: str | Mapping[str, Any]) -> dict[str, Any]:
    fields = {"name": text} if isinstance(text, str) else dict(text)
    return {"id": label_id, "name": label_id, **fields}


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(content)
