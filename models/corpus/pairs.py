"""Files with one row for each pair of a document and a label, read as documents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from longtail.models.corpus.raw import RawDocument
from longtail.models.errors import DataError
from longtail.models.files.text_files import BadLine


def grouped_rows(
    path: Path, rows: Iterable[RawDocument | BadLine]
) -> Iterator[RawDocument | BadLine]:
    """Yield a document for each run of rows with the same id, or, without ids, the same text.

    In memory are the rows of one document, and a hash of each document before it. A row of a known
    id with another text is a problem.

    Args:
        path: Of the file, for messages.
        rows: With the labels of one pair each.

    Raises:
        DataError: Rows of a document stand apart: all of them would have to be kept.
    """
    seen: set[int] = set()
    whole: RawDocument | None = None
    for row in rows:
        if isinstance(row, BadLine):
            yield row
        elif whole is None or _key(row) != _key(whole):
            if whole is not None:
                yield whole
            _check_new(path, row, seen)
            whole = row
        elif row.text != whole.text:
            yield BadLine(
                row.line,
                f"id {row.id!r} with another text than on line {whole.line}; expected the same on "
                "each row of a document",
            )
        else:
            labels = dict.fromkeys([*map(str, whole.labels), *map(str, row.labels)])
            whole = replace(whole, labels=tuple(labels))
    if whole is not None:
        yield whole


def _key(row: RawDocument) -> tuple[bool, str]:
    return (row.id is None, row.text if row.id is None else row.id)


def _check_new(path: Path, row: RawDocument, seen: set[int]) -> None:
    """Note that a document begins."""
    by_text, key = _key(row)
    content = key.encode("utf-8", "surrogatepass") + bytes([by_text])
    number = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")
    if number in seen:
        what = "this text" if by_text else f"id {key!r}"
        raise DataError(
            f"{path}, line {row.line}: {what} again, after other documents; with "
            "--one-row-per-label all rows of a document must stand together: sort the file by "
            f"{'its text' if by_text else 'its id'}"
        )
    seen.add(number)
