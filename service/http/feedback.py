"""One way for entries of feedback into the store, whatever protocol they came in."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from longtail.models.errors import RequestError
from longtail.models.feedback import Entry
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.service.errors import DeadlineError, FeedbackStoreError
from longtail.service.feedback.store import FeedbackStore, Receipt, Record
from longtail.service.feedback.writer import FeedbackWriter, Meant, entry_of
from longtail.service.http.deps import MAX_READERS, Service, add_log_fields, log_fields_of
from longtail.service.schemas.feedback import FeedbackEntry
from longtail.service.settings import Settings
from longtail.service.telemetry.metrics import Verdicts, band_of
from longtail.service.wire.problems import Kind, KindError

OFF = Kind("feedback-off", 403, "Feedback is off")

_Result = TypeVar("_Result")

MAX_ENTRIES = 100
"""Entries of feedback in one request."""
_MAX_INLINE = 20_000
"""Characters that are looked at without another thread: about a millisecond."""
_CHARACTERS_OF_LABEL = 50


def writer_of(service: Service) -> FeedbackWriter:
    """Return who writes feedback."""
    if service.feedback is None:
        raise KindError(OFF, "This service keeps no feedback; set LONGTAIL_FEEDBACK to a folder")
    return service.feedback


async def store_feedback(
    request: Request, service: Service, said: Sequence[FeedbackEntry]
) -> list[tuple[Entry, Receipt]]:
    """Return the entries when they are on the disk, each with what became of it."""
    writer = writer_of(service)
    if len(said) > MAX_ENTRIES:
        raise RequestError(
            f"entries: got {len(said)}, expected at most {MAX_ENTRIES}; send several times"
        )
    models = [_meant(service, each.version) for each in said]
    key = log_fields_of(request.scope).get("key")
    who = key if isinstance(key, str) else None
    work = partial(_prepared, service.settings, said, models, who)
    is_small = sum(map(_size_of, said)) <= _MAX_INLINE
    prepared = work() if is_small else await run_in_threadpool(work)
    receipts = await written(service, writer.add([entry for entry, _ in prepared]))
    add_log_fields(request.scope, entries=len(prepared))
    for (entry, verdicts), receipt in zip(prepared, receipts, strict=True):
        service.telemetry.feedback.count(entry, verdicts, is_new=receipt.is_new)
    return [(entry, receipt) for (entry, _), receipt in zip(prepared, receipts, strict=True)]


def read_records(service: Service, after: int, limit: int) -> list[Record]:
    """Return the records that come after a sequence number, read over a connection of its own."""
    writer_of(service)
    place = service.settings.feedback
    assert place is not None  # it has a writer
    if not service.feedback_readers.acquire(blocking=False):
        raise FeedbackStoreError(
            f"the feedback store is read by {MAX_READERS} others, as many as may; try again"
        )
    try:
        with FeedbackStore(place) as store:
            return store.page(after, limit)
    finally:
        service.feedback_readers.release()


async def written(service: Service, work: Future[_Result]) -> _Result:
    """Return what the writer did."""
    try:
        async with asyncio.timeout(service.settings.request_timeout_s):
            return await asyncio.wrap_future(work)
    except TimeoutError:
        raise DeadlineError(
            "the feedback was not written in time, but may be yet; send it again with the same ids"
        ) from None


def _meant(service: Service, version: int | str | None) -> Meant:
    model = service.manager.get(version)
    return Meant(model.version, model.digest, model.predictor.catalogue)


def _size_of(said: FeedbackEntry) -> int:
    """Return about how many characters and labels there are to look at, in characters."""
    return len(said.whole_text or "") + _CHARACTERS_OF_LABEL * said.num_labels


def _prepared(
    settings: Settings, said: Sequence[FeedbackEntry], models: Sequence[Meant], who: str | None
) -> list[tuple[Entry, Verdicts]]:
    """Return the entries to store, each with its labels as the metrics count them."""
    prepared = []
    for number, (each, meant) in enumerate(zip(said, models, strict=True)):
        where = f"entries/{number}/"
        if (length := len(each.whole_text or "")) > settings.max_text_characters:
            raise RequestError(
                f"{where}text: got {length} characters, expected at most "
                f"{settings.max_text_characters}; send 'text_sha256' or 'document_id' instead"
            )
        entry = entry_of(each, meant, who=who, keeps_text=settings.feedback_texts, where=where)
        prepared.append((entry, _verdicts_of(entry, meant.catalogue)))
    return prepared


def _verdicts_of(entry: Entry, catalogue: LabelCatalogue) -> Verdicts:
    verdicts: Verdicts = Counter()
    for name in ("accepted", "rejected", "added"):
        for label_id in getattr(entry, name):
            row = catalogue.row_of_id(label_id)
            assert row is not None  # it was looked up
            verdicts[name, band_of(catalogue[row].training_count)] += 1
    return verdicts
