"""Files of feedback, JSON lines: what `longtail feedback` imports and exports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from longtail.models.bundle.registry import Registry
from longtail.models.errors import BundleError, DataError, RequestError, count_of
from longtail.models.feedback import Entry, sha256_of
from longtail.models.files.durable import write_lines_durably
from longtail.models.files.rows import Fields, json_rows
from longtail.models.files.text_files import BadLine, ProblemList, list_problems
from longtail.models.parts.texts import joined_text
from longtail.service.errors import FeedbackConflictError
from longtail.service.feedback.store import FeedbackStore
from longtail.service.feedback.writer import Meant, entry_of, unchecked_entry
from longtail.service.schemas.base import SURROGATE
from longtail.service.schemas.feedback import FeedbackEntry
from longtail.service.wire.problems import describe_invalid, faults_of

_BATCH = 500
"""Lines in one transaction, and records of one page."""
_MAX_PROBLEMS = 10
_MAX_REFUSALS = 10
_DELETED = "deleted_at"
Wanted: TypeAlias = Entry | str
"""What a line asks for: an entry to store, or the id of one to delete."""


class _Origin(BaseModel):
    """Fields of an exported entry besides its verdicts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Annotated[int, Field(ge=1)]
    model_digest: Annotated[str, Field(min_length=1, max_length=200)]
    given_at: Annotated[str, Field(min_length=1, max_length=100)]
    who: Annotated[str, Field(max_length=200)] | None = None
    sequence: int = 0


_OF_ORIGIN = _Origin.model_fields.keys() - {"version"}


@dataclass(slots=True)
class Imported:
    """What became of the lines of a file.

    Attributes:
        stored: Entries that are new.
        known: Entries that were there already.
        deleted: Entries that the file says are deleted, and that were there.
        refused: Entries that were not stored, because their ids are taken.
        reasons: Why, of the first of them.
    """

    stored: int = 0
    known: int = 0
    deleted: int = 0
    refused: int = 0
    reasons: list[str] = field(default_factory=list)


class Versions:
    """Model versions of a registry, opened when a line names them."""

    def __init__(self, registry: Path, default: str) -> None:
        """Name the registry, and the version for lines that name none."""
        self._registry = Registry(registry)
        self._default = default
        self._opened: dict[int, Meant] = {}

    def meant(self, version: int | str | None) -> Meant:
        """Return the version that a line names."""
        number = self._registry.resolve(self._default if version is None else version)
        if number not in self._opened:
            bundle = self._registry.open(number)
            self._opened[number] = Meant(number, bundle.manifest.digest, bundle.catalogue)
        return self._opened[number]


def import_feedback(
    path: Path, store: FeedbackStore, versions: Versions, *, keeps_text: bool
) -> Imported:
    """Store the entries of a file; the same file again stores nothing twice that has an id.

    Args:
        path: Entries as `POST /v1/feedback` takes them, or lines of an export, which keep their
            time, name and version and whose labels are not looked up again.
        store: Where to.
        versions: Models whose labels are looked up.
        keeps_text: Whether texts are stored.
    """
    _check_all(path, versions)
    outcome = Imported()
    wanted = (
        each
        for _, each in _wanted(path, versions, keeps_text=keeps_text)
        if not isinstance(each, BadLine)
    )
    while batch := list(islice(wanted, _BATCH)):
        _store(store, batch, outcome)
    return outcome


def export_feedback(store: FeedbackStore, path: Path) -> int:
    """Write all records to a file, or none; return how many they are."""
    count = 0

    def lines() -> Iterator[str]:
        nonlocal count
        for record in store.records():
            count += 1
            yield record.to_line()

    write_lines_durably(path, lines(), is_private=True)
    return count


def _store(store: FeedbackStore, batch: list[Wanted], outcome: Imported) -> None:
    entries = [each for each in batch if isinstance(each, Entry)]
    for result in store.append([[entry] for entry in entries]):
        if isinstance(result, FeedbackConflictError):
            outcome.refused += 1
            if len(outcome.reasons) < _MAX_REFUSALS:
                outcome.reasons.append(str(result))
            continue
        num_new = sum(receipt.is_new for receipt in result)
        outcome.stored += num_new
        outcome.known += len(result) - num_new
    for each in batch:
        if isinstance(each, str):
            outcome.deleted += store.delete(each)


def _check_all(path: Path, versions: Versions) -> None:
    problems = ProblemList(path, _MAX_PROBLEMS)
    is_empty = True
    for _, each in _wanted(path, versions, keeps_text=False):
        is_empty = False
        if isinstance(each, BadLine):
            problems.add(each)
    if problems.num_problems:
        raise DataError(
            f"{path}: {count_of(problems.num_problems, 'line')} can't be used, so nothing was "
            f"stored; mend them:\n{list_problems(problems.kept, problems.num_problems)}"
        )
    if is_empty:
        raise DataError(f"{path}: holds no entries; expected one JSON object a line")


def _wanted(
    path: Path, versions: Versions, *, keeps_text: bool
) -> Iterator[tuple[int, Wanted | BadLine]]:
    """Yield the number of each line, and what it asks for."""
    for number, row in json_rows(path):
        if isinstance(row, BadLine):
            yield number, row
            continue
        try:
            yield number, _wanted_of(row, versions, keeps_text=keeps_text)
        except ValidationError as error:
            yield number, BadLine(number, describe_invalid(faults_of(error))[0])
        except (RequestError, DataError, BundleError) as error:
            yield number, BadLine(number, str(error))


def _wanted_of(row: Fields, versions: Versions, *, keeps_text: bool) -> Wanted:
    if isinstance(row.get(_DELETED), str) and isinstance(row.get("id"), str):
        deleted: str = row["id"]
        return deleted
    said = FeedbackEntry.model_validate(_as_sent(row))
    if "model_digest" not in row:
        return entry_of(said, versions.meant(said.version), who=None, keeps_text=keeps_text)
    known = {name: row[name] for name in _Origin.model_fields if name in row}
    origin = _Origin.model_validate(known)
    entry = unchecked_entry(
        said, origin.version, origin.model_digest, who=origin.who, keeps_text=keeps_text
    )
    return replace(entry, given_at=origin.given_at)


def _as_sent(row: Fields) -> Fields:
    """Return the fields of a line as `POST /v1/feedback` takes them."""
    fields = {name: value for name, value in row.items() if name not in _OF_ORIGIN}
    text, sha256, title = (fields.get(name) for name in ("text", "text_sha256", "title"))
    if isinstance(text, str) and isinstance(sha256, str):
        whole = joined_text(title, text) if isinstance(title, str) else text
        if SURROGATE.search(whole):
            return fields
        if sha256_of(whole) != sha256:
            raise DataError(
                "text_sha256: is not the SHA-256 of the text in UTF-8; remove one of the two"
            )
        del fields["text_sha256"]
    return fields
