"""What people say of labels: entries of feedback, and how they are written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ProposedLabel:
    """A label that the model lacks.

    Attributes:
        name: What people read.
        id: The identifier that it should have; None leaves it open.
    """

    name: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """What one person said of the labels of one text.

    Attributes:
        id: Names the entry; the same id twice is the same entry.
        given_at: When it came (ISO 8601, UTC).
        who: Name of the key that it came with; None where no key is needed.
        version: The model version whose labels are meant.
        model_digest: Digest of that version.
        document_id: The caller's name of the text; None where there is none.
        text: The text, where texts are kept.
        text_sha256: In hexadecimal, of the text in UTF-8; None where no text was sent.
        accepted: Ids of labels that the model found and that are right.
        rejected: Ids of labels that the model found and that are wrong.
        added: Ids of labels that the model did not find and that are right.
        proposed: Labels that are right and that the model lacks.
        promised: Those of `accepted` and `rejected` that the answer had marked as accepted by a
            promise.
        promised_precision: That this promise is of; None where there are none.
    """

    id: str
    given_at: str
    who: str | None
    version: int
    model_digest: str
    document_id: str | None
    text: str | None
    text_sha256: str | None
    accepted: tuple[str, ...]
    rejected: tuple[str, ...]
    added: tuple[str, ...]
    proposed: tuple[ProposedLabel, ...] = ()
    promised: tuple[str, ...] = ()
    promised_precision: float | None = None

    @property
    def digest(self) -> str:
        """Hex sha256 of what was said: the text and the labels, in whatever order.

        Not of when, by whom and about which version, which differ when a message is sent again.
        """
        proposed = sorted((label.name, label.id or "") for label in self.proposed)
        said = [
            self.document_id,
            self.text_sha256,
            sorted(self.accepted),
            sorted(self.rejected),
            sorted(self.added),
            proposed,
        ]
        return hashlib.sha256(json.dumps(said).encode("ascii")).hexdigest()

    def to_json(self) -> str:
        """Return the entry as one JSON object without its id."""
        fields = asdict(self)
        del fields["id"]
        if not self.promised:
            del fields["promised"], fields["promised_precision"]
        return json.dumps(fields, ensure_ascii=False)


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


def sha256_of(text: str) -> str:
    """Return the hex sha256 of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()
