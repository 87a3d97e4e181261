"""Feedback as files have it: JSON lines, as `longtail feedback export` writes them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from longtail.models.errors import DataError, count_of
from longtail.models.feedback import Entry
from longtail.models.files.rows import json_rows, string_of
from longtail.models.files.text_files import BadLine, ProblemList, list_problems

_MAX_PROBLEMS = 10


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
        """The SHA-256 of the verdicts in hexadecimal, without their times and authors."""
        said = [
            [
                each.text_sha256 or "", each.document_id or "", each.right, each.rejected,
                [[label.name, label.id or ""] for label in each.proposed],
            ]
            for each in self.entries
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(said).encode("ascii")).hexdigest()


def read_feedback(path: Path, place: str = "") -> Feedback:
    """Return the entries of a file without deleted entries.

    Args:
        path: The file.
        place: Place of the feedback, for messages; empty: the file.
    """
    place = place or str(path)
    problems = ProblemList(Path(place), _MAX_PROBLEMS)
    entries: list[Entry] = []
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
                entries.append(Entry.from_fields(row))
        except DataError as error:
            of_entry = f" (entry {name[:100]!r})" if name else ""
            problems.add(BadLine(number, f"{error}{of_entry}"))
    if problems.num_problems:
        raise DataError(
            f"{place}: {count_of(problems.num_problems, 'line')} can't be used; mend or remove "
            "them (in a store, 'longtail feedback delete' removes an entry):\n"
            f"{list_problems(problems.kept, problems.num_problems)}"
        )
    kept = tuple(entry for entry in entries if not entry.id or entry.id not in deleted)
    return Feedback(kept, len(deleted))
