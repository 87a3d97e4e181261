"""Files of documents that people are to label, as `longtail select` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from longtail.models.errors import DataError
from longtail.service.feedback.entries import sha256_of
from longtail.service.feedback.queue import QueuedDocument
from longtail.service.offline.documents import (
    BYTE_ORDER_MARK,
    MAX_LINE_BYTES,
    as_question,
    check_source,
    document_lines,
)
from longtail.service.schemas.feedback import MAX_ID_CHARACTERS, PLAIN
from longtail.service.wire.lines import TOO_LONG, LineError, parse_line
from longtail.service.wire.problems import INVALID

MAX_DOCUMENTS = 100_000
"""Of a queue; all are held in memory."""
_OF_TEXT = "text-"
_DIGEST_CHARACTERS = 32


def read_queue(path: Path, max_text_characters: int) -> Iterator[QueuedDocument]:
    """Yield the documents of a file, in its order; of equal texts the first one.

    Args:
        path: In a form that `longtail predict` reads; a selection is.
        max_text_characters: Of one that the service labels.

    Raises:
        ConfigError: It is no file, or can't be opened.
        DataError: A line is no document that can be labelled, or there are too many.
    """
    check_source(path, option="--queue")
    seen = set[str]()
    for number, line in enumerate(document_lines(path), 1):
        if line is not None and not line.strip():
            continue
        try:
            document = _document_of(line, max_text_characters)
        except LineError as error:
            raise DataError(f"{path}, document {number}: {error}") from error
        if document.text_sha256 in seen:
            continue
        if len(seen) == MAX_DOCUMENTS:
            raise DataError(
                f"{path}: more than {MAX_DOCUMENTS} documents; label those first that 'longtail "
                "select' chooses"
            )
        seen.add(document.text_sha256)
        yield document


def _document_of(line: bytes | None, max_text_characters: int) -> QueuedDocument:
    """Return the document of a line.

    Raises:
        LineError: It has none.
    """
    if line is None:
        raise LineError(TOO_LONG, f"more than {MAX_LINE_BYTES} bytes; shorten it")
    asked = parse_line(line.removeprefix(BYTE_ORDER_MARK), {}, as_question)
    if len(asked.text) > max_text_characters:
        raise LineError(
            INVALID,
            f"text: got {len(asked.text)} characters, expected at most {max_text_characters}; "
            "shorten it, or raise LONGTAIL_MAX_TEXT_CHARACTERS",
        )
    digest = sha256_of(asked.text)
    name = "" if asked.id is None else str(asked.id)
    if not name:
        return QueuedDocument(_OF_TEXT + digest[:_DIGEST_CHARACTERS], asked.text, digest)
    if len(name) > MAX_ID_CHARACTERS or not re.fullmatch(PLAIN, name):
        raise LineError(
            INVALID,
            f"id: got {name[:100]!r}, expected at most {MAX_ID_CHARACTERS} characters without "
            "control characters; rename it",
        )
    return QueuedDocument(name, asked.text, digest)
