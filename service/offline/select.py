"""A file of unlabelled documents in, the ones to label out: what `longtail select` does."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from joblib import cpu_count

from longtail.models.errors import DataError
from longtail.models.files.durable import write_lines_durably
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.selection.choice import Chosen, choose, similar_documents
from longtail.models.selection.pool import RARE_BELOW, Pool, read_pool
from longtail.service.offline.documents import (
    BYTE_ORDER_MARK,
    MAX_LINE_BYTES,
    DocumentColumns,
    as_question,
    document_lines,
)
from longtail.service.wire.lines import TOO_LONG, LineError, parse_line

MAX_POOL = 50_000
"""Different texts that are compared with one another; of more, so many are drawn."""
STAGES = 2
"""Which documents pass: read by the model, and compared with one another."""
_NUM_LABELS = 5
"""Labels, and rare labels, that are told of a document."""
_LEAST_PROBABILITY = 0.01
"""Of a rare label that is told."""


@dataclass(slots=True)
class Document:
    """A text that can be chosen.

    Attributes:
        index: Number of its line, from 0.
        id: The caller's name of it; None where it has none.
        text: It.
        copies: How often the text stands in the file.
    """

    index: int
    id: str | int | None
    text: str
    copies: int = 1


@dataclass(slots=True)
class Documents:
    """The different texts of a file.

    Attributes:
        kept: Those that are chosen from, in the order of the file.
        num_read: Documents of the file that can be used, equal ones too.
        num_left_out: Of them, those whose texts were not drawn.
        num_errors: Lines that can't be used.
        first_error: What is wrong with the first of them.
    """

    kept: list[Document] = field(default_factory=list)
    num_read: int = 0
    num_left_out: int = 0
    num_errors: int = 0
    first_error: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be chosen.

    Attributes:
        number: Of documents.
        rare_share: Of them, those chosen for the rare labels that they may carry.
        scorer: That says what the model is in doubt about.
    """

    number: int
    rare_share: float
    scorer: str


def read_documents(
    path: Path,
    columns: DocumentColumns,
    max_pool: int = MAX_POOL,
    progress: Callable[[int], object] = int,
) -> Documents:
    """Return the different texts of a file: all, or so many of them, drawn by a hash of the text.

    No more than those are held, however long the file is; the same texts are drawn wherever they
    stand in it.

    Args:
        path: The file.
        columns: Those that are named.
        max_pool: Most texts to keep.
        progress: Called with the bytes of the file that were read since.

    Raises:
        DataError: The file can't be read, or no line of it can be used.
    """
    found = Documents()
    kept: dict[int, Document] = {}
    largest: list[int] = []  # minus the digests of those kept
    for index, line in enumerate(_lines(path, columns, progress)):
        try:
            document = _document_of(line, index)
        except LineError as error:
            found.num_errors += 1
            found.first_error = found.first_error or f"the one with index {index}: {error}"
            continue
        found.num_read += 1
        digest = int.from_bytes(hashlib.blake2b(document.text.encode(), digest_size=16).digest())
        if digest in kept:
            kept[digest].copies += 1
            continue
        if len(kept) == max_pool and digest > -largest[0]:
            continue
        kept[digest] = document
        heapq.heappush(largest, -digest)
        if len(kept) > max_pool:
            del kept[-heapq.heappop(largest)]
    if not kept:
        raise DataError(
            f"none of the {found.num_errors} documents of {str(path)!r} can be used"
            + (f"; the first: {found.first_error}" if found.first_error else "")
        )
    found.kept = sorted(kept.values(), key=lambda each: each.index)
    found.num_left_out = found.num_read - sum(each.copies for each in found.kept)
    return found


def select_documents(
    predictor: Predictor,
    documents: list[Document],
    wanted: Wanted,
    *,
    num_threads: int | None = None,
    progress: Callable[[int], object] = int,
) -> list[dict[str, Any]]:
    """Return the documents to label, the first choice first, with why.

    Args:
        predictor: The model.
        documents: What `read_documents` has kept.
        wanted: What to choose.
        num_threads: That compare documents at the same time; None: one a core.
        progress: Called with a number of documents whenever so many have passed one of `STAGES`.

    Raises:
        RequestError: A text can't be ranked.
    """
    texts = [each.text for each in documents]
    pool = read_pool(predictor, texts, wanted.scorer, progress)
    similar = similar_documents(
        pool.features, num_threads=num_threads or cpu_count(), progress=progress
    )
    copies = np.array([each.copies for each in documents], dtype=np.int64)
    chosen = choose(pool, similar, copies, wanted.number, rare_share=wanted.rare_share)
    return [
        _described(predictor, pool, documents, each, rank) for rank, each in enumerate(chosen, 1)
    ]


def write_selection(selected: list[dict[str, Any]], path: Path) -> None:
    """Write the documents to a file, JSON lines, or none of them."""
    write_lines_durably(
        path, (json.dumps(each, ensure_ascii=False) for each in selected), is_private=True
    )


def _lines(
    path: Path, columns: DocumentColumns, progress: Callable[[int], object]
) -> Iterator[bytes | None]:
    for line in document_lines(path, progress, MAX_LINE_BYTES, columns):
        if line is None or line.strip():
            yield line


def _document_of(line: bytes | None, index: int) -> Document:
    """Return the document of a line, whatever it asks besides.

    Raises:
        LineError: It has none.
    """
    if line is None:
        raise LineError(TOO_LONG, f"the line has more than {MAX_LINE_BYTES} bytes; shorten it")
    asked = parse_line(line.removeprefix(BYTE_ORDER_MARK), {}, as_question)
    return Document(index, asked.id, asked.text)


def _described(
    predictor: Predictor, pool: Pool, documents: list[Document], chosen: Chosen, rank: int
) -> dict[str, Any]:
    """Return a chosen document as it is written."""
    document, row = documents[chosen.document], chosen.document
    nearest = None
    if chosen.nearest is not None:
        other = documents[chosen.nearest]
        nearest = {"index": other.index, "id": other.id, "similarity": round(chosen.similarity, 4)}
    labels = _labels_of(predictor, pool, row)
    rare = [x for x in labels if x["training_count"] < RARE_BELOW]
    return {
        "rank": rank,
        "index": document.index,
        "id": document.id,
        "text": document.text,
        "copies": document.copies,
        "gain": chosen.gain,
        "uncertainty": float(pool.uncertainties[row]),
        "chosen_for": "rare_labels" if chosen.for_rare_labels else "gain",
        "training_similarity": float(pool.covered[row]),
        "nearest_chosen": nearest,
        "rare_labels": [x for x in rare if x["probability"] >= _LEAST_PROBABILITY][:_NUM_LABELS],
        "labels": labels[:_NUM_LABELS],
    }


def _labels_of(predictor: Predictor, pool: Pool, row: int) -> list[dict[str, Any]]:
    """Return the candidates of a document, the best first."""
    found = zip(pool.labels[row].tolist(), pool.probabilities[row].tolist(), strict=True)
    return [
        {
            "id": predictor.catalogue[label].id,
            "name": predictor.catalogue[label].name,
            "training_count": predictor.catalogue[label].training_count,
            "probability": probability,
        }
        for label, probability in found
        if label != NO_LABEL
    ]
