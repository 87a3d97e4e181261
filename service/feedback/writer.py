"""One thread that writes feedback: many requests in one transaction, acknowledged after it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeAlias

from longtail.models.errors import LongtailError, NotReadyError
from longtail.service.errors import FeedbackStoreError, QueueFullError
from longtail.service.feedback.entries import Entry, Receipt
from longtail.service.feedback.store import FeedbackStore

logger = logging.getLogger(__name__)

_MAX_BATCH = 1000
"""Requests in one transaction."""
_RETRY_AFTER_S = 1
_MAX_STOP_S = 10.0
"""Until a store that hangs is left alone; nobody was told that what it has not written is kept."""


@dataclass(frozen=True, slots=True)
class _Addition:
    """Entries to store."""

    entries: tuple[Entry, ...]
    done: Future[list[Receipt]] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class _Deletion:
    """An entry to erase."""

    entry_id: str
    done: Future[bool] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class _Replacement:
    """What comes in place of the earlier entries of a series (see `FeedbackStore.replace`)."""

    series: str
    record_id: str
    entry: Entry | None
    done: Future[bool] = field(default_factory=Future)


_Job: TypeAlias = _Addition | _Deletion | _Replacement


class FeedbackWriter:
    """Takes entries of any thread and stores them in the order in which they came."""

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
        self._told = ""
        self._thread = threading.Thread(target=self._run, name="feedback", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self) -> None:
        """Write what waits, then end; nothing is taken any more, and a store that hangs is left."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(_MAX_STOP_S)
            if self._thread.is_alive():
                logger.error("the feedback store hangs; %d entries wait in vain", self._num_waiting)

    def add(self, entries: Sequence[Entry]) -> Future[list[Receipt]]:
        """Take entries, all or none; the result is there when they are on the disk.

        The future raises `FeedbackConflictError` where an id is taken, and `FeedbackStoreError`
        where the store can't be written.

        Raises:
            QueueFullError: Too many wait.
            NotReadyError: The writer is closed.
        """
        job = _Addition(tuple(entries))
        self._take(job, len(job.entries))
        return job.done

    def delete(self, entry_id: str) -> Future[bool]:
        """Take the id of an entry to erase; the result is whether there is such an id.

        Raises:
            QueueFullError: Too many wait.
            NotReadyError: The writer is closed.
        """
        job = _Deletion(entry_id)
        self._take(job, 1)
        return job.done

    def replace(self, series: str, record_id: str, entry: Entry | None) -> Future[bool]:
        """Take an entry that comes in place of the earlier ones of its series.

        The result is whether it is new; the arguments are those of `FeedbackStore.replace`.

        Raises:
            QueueFullError: Too many wait.
            NotReadyError: The writer is closed.
        """
        job = _Replacement(series, record_id, entry)
        self._take(job, 1)
        return job.done

    def _take(self, job: _Job, size: int) -> None:
        with self._changed:
            if self._is_closed:
                raise NotReadyError("the service is stopping; ask another instance")
            if self._num_waiting and self._num_waiting + size > self._max_waiting:
                raise QueueFullError(
                    f"{self._num_waiting} entries of feedback wait to be written, of at most "
                    f"{self._max_waiting}; send these {size} again later",
                    _RETRY_AFTER_S,
                )
            self._num_waiting += size
            self._jobs.append(job)
            self._changed.notify()

    def _run(self) -> None:
        while jobs := self._next_jobs():
            live = [job for job in jobs if job.done.set_running_or_notify_cancel()]
            self._store_all([job for job in live if isinstance(job, _Addition)])
            for job in live:
                if not isinstance(job, _Addition):
                    self._change(job)
        self._store.close()

    def _next_jobs(self) -> list[_Job]:
        """Return all that waits, as soon as anything does; nothing when the writer is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._is_closed)
            jobs = [self._jobs.popleft() for _ in range(min(_MAX_BATCH, len(self._jobs)))]
            self._num_waiting -= sum(map(_size_of, jobs))
            return jobs

    def _store_all(self, jobs: Sequence[_Addition]) -> None:
        if not jobs:
            return
        try:
            results = self._store.append([job.entries for job in jobs])
        except Exception as error:  # noqa: BLE001  # goes to those who wait; the thread goes on
            for job in jobs:
                job.done.set_exception(self._told_failure(error))
            return
        self._told = ""
        for job, result in zip(jobs, results, strict=True):
            if isinstance(result, list):
                job.done.set_result(result)
            else:
                job.done.set_exception(result)

    def _change(self, job: _Deletion | _Replacement) -> None:
        try:
            if isinstance(job, _Deletion):
                is_done = self._store.delete(job.entry_id)
            else:
                is_done = self._store.replace(job.series, job.record_id, job.entry)
            job.done.set_result(is_done)
        except Exception as error:  # noqa: BLE001  # as above
            job.done.set_exception(self._told_failure(error))

    def _told_failure(self, error: Exception) -> LongtailError:
        """Return the failure for those who wait; logged once for as long as it stays the same."""
        if str(error) != self._told:
            logger.error("feedback is not stored: %s", error, exc_info=error)
            self._told = str(error)
        if isinstance(error, LongtailError):
            return error
        return FeedbackStoreError("the feedback store failed; its cause is in the log")


def _size_of(job: _Job) -> int:
    return len(job.entries) if isinstance(job, _Addition) else 1
