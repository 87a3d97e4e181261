"""Records of the feedback store, and its answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Record:
    """What the store keeps under an id: an entry, or that it was deleted.

    Attributes:
        sequence: Rises with every record that is written.
        id: Of the entry.
        content: The fields of the entry; of a deleted one `deleted_at` alone.
    """

    sequence: int
    id: str
    content: Mapping[str, Any]

    def to_line(self) -> str:
        """Return the record as a line of an export."""
        fields = {"sequence": self.sequence, "id": self.id, **self.content}
        return json.dumps(fields, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of an entry.

    Attributes:
        id: Of the entry.
        is_new: Whether it was stored now, and not before.
    """

    id: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class Counts:
    """How much a store holds.

    Attributes:
        entries: Entries that are not deleted.
        deleted: Entries that were.
        with_text: Entries whose text is kept.
        accepted: Labels accepted, in all entries together; so with the others.
        rejected: Labels rejected.
        added: Labels added.
        proposed: Labels proposed.
    """

    entries: int
    deleted: int
    with_text: int
    accepted: int
    rejected: int
    added: int
    proposed: int
