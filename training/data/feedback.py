"""Feedback as files have it: JSON lines, as `longtail feedback export` writes them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from longtail.models.errors import DataError
from longtail.models.files.bad_lines import BadLine, ProblemList, counted_lines, list_problems
from longtail.models.files.fields import check_characters, shown, string_of
from longtail.models.files.outputs import check_readable_file
from longtail.models.files.rows import Fields, json_rows

_MAX_PROBLEMS = 10
ExportFeedback: TypeAlias = Callable[[str | Path, Path], object]
"""Writes what a folder of feedback holds to a file of JSON lines."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ProposedLabel:
    """A label that a person missed.

    Attributes:
        name: What people read.
        id: The identifier that it should have; empty leaves it open.
    """

    name: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one person said of the labels of one text.

    Attributes:
        text: The text; empty where it was not kept.
        text_sha256: In hexadecimal, of the text in UTF-8; empty where it is not known.
        document_id: The corpus's or the caller's name of the text; empty where there is none.
        right: Ids of labels that were accepted or added.
        wrong: Ids of labels that were rejected.
        proposed: Labels that are right and were not to be found.
        given_at: When it was said, ISO 8601; empty where it is not known.
    """

    text: str
    text_sha256: str
    document_id: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    proposed: tuple[ProposedLabel, ...] = ()
    given_at: str = ""


@dataclass(frozen=True, slots=True)
class Feedback:
    """The entries of a file.

    Attributes:
        entries: In the order of their lines, without deleted ones.
        num_deleted: Entries of which the file says that they were deleted.
    """

    entries: tuple[Entry, ...]
    num_deleted: int = 0

    @property
    def sha256(self) -> str:
        """Of what was said, in hexadecimal; not of when and by whom."""
        said = [
            [
                each.text_sha256, each.document_id, each.right, each.wrong,
                [[label.name, label.id] for label in each.proposed],
            ]
            for each in self.entries
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(said).encode("ascii")).hexdigest()


def open_feedback(place: str | Path, export: ExportFeedback) -> Feedback:
    """Return the entries of a file, or of a folder that a service keeps feedback in.

    Args:
        place: A path.
        export: Reads such a folder.

    Raises:
        ConfigError: It can't be read.
        DataError: As `read_feedback`.
    """
    with feedback_file(place, export) as file:
        return read_feedback(file, place=str(place))


@contextmanager
def feedback_file(place: str | Path, export: ExportFeedback) -> Iterator[Path]:
    """Give a file of the entries, which is there for as long as this lasts.

    Args:
        place: As of `open_feedback`.
        export: As of `open_feedback`.

    Yields:
        The file itself, or an export of the folder.

    Raises:
        ConfigError: It can't be read.
    """
    if not Path(place).is_dir():
        check_readable_file(Path(place), "--feedback")
        yield Path(place)
        return
    with TemporaryDirectory(prefix="longtail-") as folder:
        file = Path(folder) / "feedback.jsonl"
        export(place, file)
        yield file


def sha256_of(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_feedback(path: Path, place: str = "", *, may_be_empty: bool = False) -> Feedback:
    """Return the entries of a file; those that it says were deleted are left out.

    Args:
        path: The file.
        place: Place of the feedback, for messages; empty: the file.
        may_be_empty: Whether a file without entries is no error.

    Raises:
        DataError: A line is no entry; names the first ones, with what was expected. Or there is no
            entry at all.
    """
    place = place or str(path)
    problems = ProblemList(Path(place), _MAX_PROBLEMS)
    entries: list[tuple[str, Entry]] = []
    deleted: set[str] = set()
    for number, row in json_rows(path):
        if isinstance(row, BadLine):
            problems.add(row)
            continue
        name = ""
        try:
            name = string_of(row, "id")
            if string_of(row, "deleted_at"):
                deleted.add(name)
            else:
                entries.append((name, _entry_of(row)))
        except DataError as error:
            of_entry = f" (entry {name[:100]!r})" if name else ""
            problems.add(BadLine(number, f"{error}{of_entry}"))
    if problems.num_problems:
        raise DataError(
            f"{place}: {counted_lines(problems.num_problems)} can't be used; mend or remove them "
            "(in a store, 'longtail feedback delete' removes an entry):\n"
            f"{list_problems(problems.kept, problems.num_problems)}"
        )
    kept = tuple(entry for name, entry in entries if not name or name not in deleted)
    if not kept and not may_be_empty:
        raise DataError(
            f"{place}: holds no feedback; expected one JSON object a line, as 'longtail feedback "
            "export' writes them"
        )
    return Feedback(kept, len(deleted))


def _entry_of(row: Fields) -> Entry:
    """Return what a line says."""
    text, digest = string_of(row, "text"), string_of(row, "text_sha256")
    if digest and not _SHA256.fullmatch(digest):
        raise DataError(f"text_sha256 is {digest[:100]!r}; expected 64 hexadecimal digits")
    if text and digest not in {"", sha256_of(text)}:
        raise DataError("text_sha256 is not that of the text in UTF-8; remove one of the two")
    entry = Entry(
        text=text,
        text_sha256=sha256_of(text) if text else digest,
        document_id=string_of(row, "document_id"),
        right=(*_ids_of(row, "accepted"), *_ids_of(row, "added")),
        wrong=_ids_of(row, "rejected"),
        proposed=tuple(_proposed_of(each) for each in _list_of(row, "proposed")),
        given_at=string_of(row, "given_at"),
    )
    _check(entry)
    return entry


def _check(entry: Entry) -> None:
    """Refuse an entry of no text, a blank one, or one that says nothing or two things of a label.

    Raises:
        DataError: It is one.
    """
    if not (entry.text_sha256 or entry.document_id):
        raise DataError("of no text; expected one of text, text_sha256 and document_id")
    if entry.text and not entry.text.strip():
        raise DataError("text is blank; expected a text, or none beside its text_sha256")
    if not (entry.right or entry.wrong or entry.proposed):
        raise DataError(
            "names no label; expected ids in accepted, rejected or added, or labels in proposed"
        )
    if both := set(entry.right).intersection(entry.wrong):
        raise DataError(
            f"label {sorted(both)[0][:100]!r} is right and rejected; expected one of the two"
        )


def _list_of(row: Fields, name: str) -> Sequence[object]:
    """Return a field that holds a list; empty where it is missing or null."""
    value = row.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise DataError(f"{name} is {shown(value)}; expected a list")
    return value


def _ids_of(row: Fields, name: str) -> tuple[str, ...]:
    """Return a field that lists ids of labels."""
    found = []
    for value in _list_of(row, name):
        if not isinstance(value, str) or not value:
            raise DataError(f"{name} holds {shown(value)}; expected ids of labels")
        check_characters(name, value)
        found.append(value)
    return tuple(found)


def _proposed_of(value: object) -> ProposedLabel:
    """Return a label that is proposed."""
    if not isinstance(value, dict):
        raise DataError(f"proposed holds {shown(value)}; expected objects with a name")
    label = ProposedLabel(string_of(value, "name").strip(), string_of(value, "id").strip())
    if not any(sign.isalnum() for sign in label.name):
        raise DataError(f"proposed holds {shown(value)}; expected a name with a letter or a digit")
    return label
