"""One thread that writes feedback: many requests in one transaction, acknowledged after it.

`entry_of` makes an entry: labels are looked up, texts are left out unless they are to be kept.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from longtail.models.errors import LongtailError, NotReadyError, RequestError
from longtail.models.feedback import Entry, sha256_of
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.service.errors import FeedbackStoreError, QueueFullError
from longtail.service.feedback.store import FeedbackStore, Receipt, now
from longtail.service.schemas.feedback import FeedbackEntry

logger = logging.getLogger(__name__)

_MAX_BATCH = 1000
"""Requests in one transaction."""
_RETRY_AFTER_S = 1
_MAX_STOP_S = 10.0
"""Seconds to wait for a store that hangs; what it has not written was not acknowledged."""


@dataclass(frozen=True, slots=True)
class _Job:
    """Entries to add, or another change of the store."""

    entries: Sequence[Entry] = ()
    change: Callable[[FeedbackStore], bool] | None = None
    done: Future[Any] = field(default_factory=Future)

    @property
    def size(self) -> int:
        """Entries that wait."""
        return len(self.entries) if self.change is None else 1


class FeedbackWriter:
    """Takes entries of any thread and stores them in the order in which they came.

    The methods raise `QueueFullError` if too many entries wait, and `NotReadyError` if the writer
    is closed. Their futures raise `FeedbackStoreError` if the store can't be written.
    """

    def __init__(self, store: FeedbackStore, max_waiting: int = 1000) -> None:
        """Write nothing yet.

        Args:
            store: Used by the thread of this writer only.
            max_waiting: Most entries that may wait; more are taken in one request if none waits.
        """
        self._store = store
        self._max_waiting = max_waiting
        self._jobs: deque[_Job] = deque()
        self._num_waiting = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self._logged = ""
        self._thread = threading.Thread(target=self._run, name="feedback", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self) -> None:
        """Write what waits, then end; a store that hangs is left alone."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(_MAX_STOP_S)
            if self._thread.is_alive():
                logger.error("the feedback store hangs; %d entries wait in vain", self._num_waiting)

    def add(self, entries: Sequence[Entry]) -> Future[list[Receipt]]:
        """Take entries, all or none; the result is there when they are on the disk.

        The future raises `FeedbackConflictError` if an id is taken.
        """
        return self._take(_Job(tuple(entries)))

    def delete(self, entry_id: str) -> Future[bool]:
        """Take the id of an entry to erase; the result is whether there is such an id."""
        return self._take(_Job(change=lambda store: store.delete(entry_id)))

    def _take(self, job: _Job) -> Future[Any]:
        with self._changed:
            if self._is_closed:
                raise NotReadyError("the service is stopping; ask another instance")
            if self._num_waiting and self._num_waiting + job.size > self._max_waiting:
                raise QueueFullError(
                    f"{self._num_waiting} entries of feedback wait to be written, of at most "
                    f"{self._max_waiting}; send these {job.size} again later",
                    _RETRY_AFTER_S,
                )
            self._num_waiting += job.size
            self._jobs.append(job)
            self._changed.notify()
        return job.done

    def _run(self) -> None:
        while jobs := self._next_jobs():
            live = [job for job in jobs if job.done.set_running_or_notify_cancel()]
            if additions := [job for job in live if job.change is None]:
                self._do(additions)
            for job in live:
                if job.change is not None:
                    self._do([job])
        self._store.close()

    def _next_jobs(self) -> list[_Job]:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._is_closed)
            jobs = [self._jobs.popleft() for _ in range(min(_MAX_BATCH, len(self._jobs)))]
            self._num_waiting -= sum(job.size for job in jobs)
            return jobs

    def _do(self, jobs: Sequence[_Job]) -> None:
        """Do a change, or several additions in one transaction, and tell those who wait."""
        change = jobs[0].change
        results: Sequence[object]
        try:
            if change is None:
                results = self._store.append([job.entries for job in jobs])
                self._logged = ""
            else:
                results = [change(self._store)]
        except Exception as error:  # noqa: BLE001  # goes to those who wait; the thread goes on
            results = [self._logged_failure(error)] * len(jobs)
        for job, result in zip(jobs, results, strict=True):
            if isinstance(result, LongtailError):
                job.done.set_exception(result)
            else:
                job.done.set_result(result)

    def _logged_failure(self, error: Exception) -> LongtailError:
        """Return the failure for those who wait; logged once for as long as it stays the same."""
        if str(error) != self._logged:
            logger.error("feedback is not stored: %s", error, exc_info=error)
            self._logged = str(error)
        if isinstance(error, LongtailError):
            return error
        return FeedbackStoreError("the feedback store failed; its cause is in the log")


@dataclass(frozen=True, slots=True)
class Meant:
    """The model version that an entry is about.

    Attributes:
        version: Its number.
        digest: Digest of its bundle.
        catalogue: Its labels.
    """

    version: int
    digest: str
    catalogue: LabelCatalogue


def entry_of(
    said: FeedbackEntry, meant: Meant, *, who: str | None, keeps_text: bool, where: str = ""
) -> Entry:
    """Return the entry to store.

    Args:
        said: What came.
        meant: The version that it names.
        who: Name of the key that it came with.
        keeps_text: Whether the text is kept.
        where: Names the entry in errors, such as "entries/0: ".
    """
    check_labels(said, meant, where)
    return unchecked_entry(said, meant.version, meant.digest, who=who, keeps_text=keeps_text)


def unchecked_entry(
    said: FeedbackEntry, version: int, digest: str, *, who: str | None, keeps_text: bool
) -> Entry:
    """Return the entry to store of labels that were looked up."""
    text = said.whole_text
    return Entry(
        id=said.id or secrets.token_hex(16),
        given_at=now(),
        who=who,
        version=version,
        model_digest=digest,
        document_id=said.document_id,
        text=text if keeps_text else None,
        text_sha256=said.text_sha256 if text is None else sha256_of(text),
        **said.verdicts,
    )


def check_labels(said: FeedbackEntry, meant: Meant, where: str = "") -> None:
    """Refuse ids that the version does not have, and new labels that it has."""
    for name in ("accepted", "rejected", "added"):
        for label_id in getattr(said, name):
            if meant.catalogue.row_of_id(label_id) is None:
                raise RequestError(
                    f"{where}{name}: version {meant.version} has no label with the id "
                    f"{label_id[:100]!r}; look it up with GET /v1/labels, or name a new label in "
                    "'proposed'"
                )
    for label in said.proposed:
        if label.id is not None and meant.catalogue.row_of_id(label.id) is not None:
            raise RequestError(
                f"{where}proposed: version {meant.version} has a label with the id "
                f"{label.id[:100]!r} already; name it in 'added'"
            )
