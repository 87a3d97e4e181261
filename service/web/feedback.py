"""One way for entries of feedback into the store, whatever protocol they came in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from starlette.requests import Request

from models.errors import RequestError
from models.labels.catalogue import LabelCatalogue
from service.errors import DeadlineError
from service.feedback.checks import Meant, entry_of
from service.feedback.entries import Entry, Receipt
from service.feedback.writer import FeedbackWriter
from service.schemas.feedback import FeedbackEntry
from service.web.deps import Service
from service.web.request_state import add_log_fields, log_fields_of
from service.wire.problems import Kind, KindError

OFF = Kind("feedback-off", 403, "Feedback is off")

_Result = TypeVar("_Result")


def writer_of(service: Service) -> FeedbackWriter:
    """Return who writes feedback.

    Raises:
        KindError: Nobody does.
    """
    if service.feedback is None:
        raise KindError(OFF, "This service keeps no feedback; set LONGTAIL_FEEDBACK to a folder")
    return service.feedback


async def store_feedback(
    request: Request, service: Service, said: Sequence[FeedbackEntry]
) -> list[tuple[Entry, Receipt]]:
    """Return the entries when they are on the disk, each with what became of it.

    Raises:
        KindError: Feedback is off.
        RequestError: There are too many, or an entry can't be taken.
        LongtailError: They can't be stored; then none is.
    """
    writer = writer_of(service)
    most = service.settings.max_feedback_entries
    if len(said) > most:
        raise RequestError(f"entries: got {len(said)}, expected at most {most}; send several times")
    models = [_meant(service, each.version) for each in said]
    entries = [
        _entry(request, service, each, meant, number)
        for number, (each, meant) in enumerate(zip(said, models, strict=True))
    ]
    receipts = await written(service, writer.add(entries))
    add_log_fields(request.scope, entries=len(entries))
    for entry, receipt, meant in zip(entries, receipts, models, strict=True):
        _count(service, entry, receipt, meant.catalogue)
    return list(zip(entries, receipts, strict=True))


async def written(service: Service, work: Future[_Result]) -> _Result:
    """Return what the writer did.

    Raises:
        DeadlineError: The disk does not answer in time; it may be done yet.
    """
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


def _entry(
    request: Request, service: Service, said: FeedbackEntry, meant: Meant, number: int
) -> Entry:
    most = service.settings.max_text_characters
    if said.text is not None and len(said.text) > most:
        raise RequestError(
            f"entries/{number}/text: got {len(said.text)} characters, expected at most {most}; "
            "send 'text_sha256' or 'document_id' instead"
        )
    who = log_fields_of(request.scope).get("key")
    return entry_of(
        said,
        meant,
        who=who if isinstance(who, str) else None,
        keeps_text=service.settings.feedback_texts,
        where=f"entries/{number}/",
    )


def _count(service: Service, entry: Entry, receipt: Receipt, catalogue: LabelCatalogue) -> None:
    metrics = service.telemetry.feedback
    metrics.count_entry("stored" if receipt.is_new else "known")
    if not receipt.is_new:
        return
    verdicts: Iterable[tuple[str, tuple[str, ...]]] = (
        ("accepted", entry.accepted),
        ("rejected", entry.rejected),
        ("added", entry.added),
    )
    for verdict, label_ids in verdicts:
        for label_id in label_ids:
            row = catalogue.row_of_id(label_id)
            assert row is not None  # it was looked up
            metrics.count_label(verdict, catalogue[row].training_count)
