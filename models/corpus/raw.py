"""What a file tells of a document, and which split a document is in.

The split of a document of a corpus in one file follows from a hash of its id or its text. Of ten
ids (of ten texts, where documents have no ids) eight are to train on, one each for dev and test.
The hash is BLAKE2b, of 8 bytes, of the UTF-8 bytes, with a personalisation of its own. So neither
the order of the documents nor a seed changes a split, and no document changes its split when others
are added, or, with ids, when its text is edited.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from tempfile import TemporaryFile, gettempdir
from typing import IO, Literal

from longtail.models.errors import ConfigError
from longtail.models.files.text_files import BadLine
from longtail.models.platform import read_at

_BUFFER = 2**20
LEAST_DIVIDED = 200
"""Fewer different ids or texts are not divided: a tenth of them would say too little."""
MOST_REPEATS = 0.25
"""Share of documents with the text of an earlier one, from which on half of them share theirs."""
LEAST_GROUPS = 50
"""Fewer groups are not divided: a split could be empty."""
SHARES = {"train": 8, "dev": 1, "test": 1}
"""Tenths of the texts."""
_PERSONALISATION = b"longtail parts"
_NAME_OF_TENTH = [name for name, share in SHARES.items() for _ in range(share)]
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


class Spool:
    """Keeps the documents of a first, whole pass, so that no file is parsed twice.

    They are in a nameless temporary file, which goes with the process.
    """

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._descriptor: int | None = None

    def documents(
        self, parse: Callable[[], Iterator[RawDocument | BadLine]]
    ) -> Iterator[RawDocument | BadLine]:
        """Return the kept documents; else parse, and keep them when all were read.

        Args:
            parse: Gives the documents, and the lines that break a rule.
        """
        return self._keeping(parse()) if self._descriptor is None else self._kept(self._descriptor)

    def _keeping(self, items: Iterator[RawDocument | BadLine]) -> Iterator[RawDocument | BadLine]:
        with TemporaryFile() as file:
            for item in items:
                with _room(file):
                    file.write(_line_of(item))
                yield item
            with _room(file):
                file.flush()
            self._descriptor = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._descriptor)

    def _kept(self, descriptor: int) -> Iterator[RawDocument | BadLine]:
        for line in io.BufferedReader(_Reader(descriptor), _BUFFER):
            fields = json.loads(line)
            if len(fields) == 2:
                yield BadLine(*fields)
            elif len(fields) == 3:
                yield EmptyText(*fields[:2])
            else:
                number, name, text, labels, group = fields
                yield RawDocument(number, name, text, tuple(labels), group)


@contextmanager
def _room(file: IO[bytes]) -> Iterator[None]:
    """Say where there is no room for a temporary file, and close it."""
    try:
        yield
    except OSError as error:
        with suppress(OSError):  # what is buffered can't be written either
            file.close()
        raise ConfigError(
            f"{gettempdir()}: documents can't be kept there while they are read "
            f"({error.strerror}); set TMPDIR to a folder with as much room as the corpus takes"
        ) from error


def _line_of(item: RawDocument | BadLine) -> bytes:
    """Return a document or a bad line as a JSON list, with one element more for an empty text."""
    if isinstance(item, RawDocument):
        fields = [item.line, item.id, item.text, item.labels, item.group]
    else:
        fields = [item.line, item.reason, *[True] * isinstance(item, EmptyText)]
    return json.dumps(fields).encode("ascii") + b"\n"


class _Reader(io.RawIOBase):
    """Reads an open file from its beginning, beside others that read it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = read_at(self._descriptor, buffer, self._position)
        self._position += count
        return count


def part_of(key: str) -> str:
    """Return the name of the split that an id or a text is in."""
    return _NAME_OF_TENTH[hash_of(key) % len(_NAME_OF_TENTH)]


def part_of_document(document: RawDocument, division: Division) -> str:
    """Return the name of the split that a document is in."""
    return part_of((_id_of(document) if division == "id" else None) or document.text)


def _id_of(document: RawDocument) -> str | None:
    """Return what keeps documents in one split: their group, where they have one, or their id."""
    return document.group or document.id


def division_of(documents: Iterable[RawDocument]) -> Division | None:
    """Return what documents are to be divided by; None: there are too few to be divided.

    By their groups, where these are named; by their ids, if there are `LEAST_DIVIDED` different
    ones, unless half of the texts have several, which would be in several splits; else by their
    texts. Reads no more documents than it needs.
    """
    ids: set[int] = set()
    texts: set[int] = set()
    least_ids, has_groups = LEAST_DIVIDED, False
    for document in documents:
        texts.add(hash_of(document.text))
        if document.group:
            least_ids, has_groups = LEAST_GROUPS, True
        if name := _id_of(document):
            ids.add(hash_of(name))
        if len(texts) >= LEAST_DIVIDED and (len(ids) >= least_ids or not ids):
            are_shared = not has_groups and MOST_REPEATS * len(ids) <= len(ids) - len(texts)
            return "id" if ids and not are_shared else "text"
    return "text" if len(texts) >= LEAST_DIVIDED and not has_groups else None


def hash_of(key: str) -> int:
    """Return a number of 64 bits that stands for an id or a text."""
    content = key.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=8, person=_PERSONALISATION).digest()
    return int.from_bytes(digest, "big")
