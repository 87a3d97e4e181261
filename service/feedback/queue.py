"""Documents that wait to be labelled: who has which, until when, and which are done.

Done is what the store of feedback has an entry about, whoever wrote it: with the SHA-256 of the
text, or, where an entry has none, with the document's id. Who has a document, and what was set
aside, is held in memory alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from longtail.models.errors import LongtailError
from longtail.service.errors import QueueFullError
from longtail.service.feedback.entries import Record
from longtail.service.feedback.store import FeedbackStore
from longtail.service.process.reloading_file import ReloadingFile

logger = logging.getLogger(__name__)

MAX_WAITING = 100
"""Requests for a document that may wait."""
_RETRY_AFTER_S = 1
_PAGE = 1000
"""Records of the store that are read at a time."""


@dataclass(frozen=True, slots=True)
class QueuedDocument:
    """A document to label.

    Attributes:
        id: The caller's name of it, or one made of its text.
        text: It.
        text_sha256: In hexadecimal, of the text in UTF-8.
    """

    id: str
    text: str
    text_sha256: str


@dataclass(frozen=True, slots=True)
class Turn:
    """What an annotator gets.

    Attributes:
        document: To label; None where no one is free.
        total: Documents of the queue.
        done: Of them, those that feedback was given about.
        taken: Of them, those that other annotators have.
    """

    document: QueuedDocument | None
    total: int
    done: int
    taken: int


@dataclass(frozen=True, slots=True)
class _Lease:
    annotator: str
    ends: float


class LabelQueue:
    """Gives documents to annotators, each to one at a time, in the order of a file.

    One thread of its own does all of it, so that no number of requests takes the others'.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[Path], Iterable[QueuedDocument]],
        open_store: Callable[[], FeedbackStore],
        lease_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the file.

        Args:
            path: The file; it is read again when it has changed.
            read: Reads it; no two documents have the same text.
            open_store: Returns the store of feedback; called for each look at it.
            lease_s: Seconds for which an annotator has a document.
            clock: Tells seconds.

        Raises:
            LongtailError: As `read` does.
        """
        self._file = ReloadingFile(path, lambda path: tuple(read(path)))
        self._open_store = open_store
        self.lease_s = lease_s
        self._clock = clock
        self._leases: dict[str, _Lease] = {}  # by the text's digest
        self._held: dict[str, str] = {}  # the text's digest by annotator
        self._begin()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="queue")
        self._num_waiting = 0
        self._lock = Lock()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(cancel_futures=True)

    def next(self, annotator: str, skip: str | None = None) -> Future[Turn]:
        """Ask for the document to label next; the one that the annotator has until it is done.

        The future raises `FeedbackStoreError` where it can't be known what is done.

        Args:
            annotator: Who asks.
            skip: Id of the document to set aside: if the annotator has it, it goes to the end.

        Raises:
            QueueFullError: Too many wait.
        """
        with self._lock:
            if self._num_waiting >= MAX_WAITING:
                raise QueueFullError(
                    f"{MAX_WAITING} annotators wait for a text; ask again later", _RETRY_AFTER_S
                )
            self._num_waiting += 1
        future = self._thread.submit(self._next, annotator, skip)
        future.add_done_callback(self._note_end)
        return future

    def _note_end(self, _: Future[Turn]) -> None:
        with self._lock:
            self._num_waiting -= 1

    def _next(self, annotator: str, skip: str | None) -> Turn:
        self._refresh()
        self._note_feedback()
        if skip is not None:
            self._set_aside(annotator, skip)
        now = self._clock()
        digest = self._held.get(annotator) or self._first_free(now)
        if digest is not None:
            self._lease(digest, _Lease(annotator, now + self.lease_s))
        return Turn(
            document=None if digest is None else self._documents[digest],
            total=len(self._documents),
            done=len(self._documents) - len(self._waiting),
            taken=sum(x.annotator != annotator and x.ends > now for x in self._leases.values()),
        )

    def _refresh(self) -> None:
        """Read the file again if it has changed; where it can't be read, all stays."""
        try:
            if self._file.refresh():
                self._begin()
        except LongtailError as error:
            logger.error("the queue stays as it was: %s", error)

    def _begin(self) -> None:
        """Begin with the documents of the file; who has one of them keeps it."""
        self._documents = {document.text_sha256: document for document in self._file.content}
        self._digests = {document.id: document.text_sha256 for document in self._file.content}
        for digest in self._leases.keys() - self._documents.keys():
            self._end_lease(digest)
        self._begin_feedback()
        logger.info("the queue has %d documents", len(self._documents))

    def _begin_feedback(self) -> None:
        self._seen = 0  # sequence of the last record that was looked at
        self._waiting = dict.fromkeys(self._documents)
        self._entries: dict[str, set[str]] = {}  # ids of entries by the text's digest
        self._about: dict[str, str] = {}  # the other way round

    def _note_feedback(self) -> None:
        """Look which documents feedback was given about since the last time."""
        with self._open_store() as store:
            if self._seen and not store.page(self._seen - 1, 1):  # another store lies there now
                self._begin_feedback()
            while records := store.page(self._seen, _PAGE):
                for record in records:
                    self._note(record)
                self._seen = records[-1].sequence

    def _note(self, record: Record) -> None:
        said = record.content
        digest = said.get("text_sha256") or self._digests.get(said.get("document_id") or "", "")
        if digest in self._documents:
            self._entries.setdefault(digest, set()).add(record.id)
            self._about[record.id] = digest
            self._waiting.pop(digest, None)
            self._end_lease(digest)
        elif (before := self._about.pop(record.id, None)) is not None:  # it is deleted
            self._entries[before].discard(record.id)
            if not self._entries[before]:
                self._waiting[before] = None

    def _set_aside(self, annotator: str, document_id: str) -> None:
        digest = self._held.get(annotator)
        if digest is not None and self._documents[digest].id == document_id:
            self._end_lease(digest)
            self._waiting[digest] = self._waiting.pop(digest)

    def _first_free(self, now: float) -> str | None:
        return next(
            (
                digest
                for digest in self._waiting
                if digest not in self._leases or self._leases[digest].ends <= now
            ),
            None,
        )

    def _lease(self, digest: str, lease: _Lease) -> None:
        self._end_lease(digest)
        self._leases[digest] = lease
        self._held[lease.annotator] = digest

    def _end_lease(self, digest: str) -> None:
        lease = self._leases.pop(digest, None)
        if lease is not None:
            del self._held[lease.annotator]
