"""One entry of feedback: the model of the service's store, its exports and learning."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from longtail.models.errors import DataError
from longtail.models.files.rows import Fields, check_characters, shown, string_of

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ProposedLabel:
    """A label that the model lacks.

    Attributes:
        name: What people read.
        id: The identifier that it should have; None leaves it open.
    """

    name: str
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A person's verdicts on the labels of one text.

    A line that a person wrote may lack the id, the time and the version.

    Attributes:
        id: Names the entry; the same id twice is the same entry.
        given_at: When it came (ISO 8601, UTC).
        who: Name of the key that it came with; None where no key is needed.
        version: The model version whose labels are meant; 0 where it names none.
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
        promised_precision: The precision of this promise; None where there are none.
    """

    id: str = ""
    given_at: str = ""
    who: str | None = None
    version: int = 0
    model_digest: str = ""
    document_id: str | None = None
    text: str | None = None
    text_sha256: str | None = None
    accepted: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    proposed: tuple[ProposedLabel, ...] = ()
    promised: tuple[str, ...] = ()
    promised_precision: float | None = None

    @property
    def right(self) -> tuple[str, ...]:
        """Ids of the labels of the model that are right."""
        return self.accepted + self.added

    @property
    def digest(self) -> str:
        """Hex sha256 of the text and the labels, in whatever order.

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

    @classmethod
    def from_fields(cls, row: Fields) -> Entry:
        """Return the text, the labels and the time of a line of feedback."""
        text, digest = string_of(row, "text"), string_of(row, "text_sha256")
        if digest and not _SHA256.fullmatch(digest):
            raise DataError(f"text_sha256 is {digest[:100]!r}; expected 64 hexadecimal digits")
        if text and digest not in {"", sha256_of(text)}:
            raise DataError("text_sha256 is not that of the text in UTF-8; remove one of the two")
        entry = cls(
            id=string_of(row, "id"),
            given_at=string_of(row, "given_at"),
            document_id=string_of(row, "document_id") or None,
            text=text or None,
            text_sha256=(sha256_of(text) if text else digest) or None,
            accepted=_ids_of(row, "accepted"),
            rejected=_ids_of(row, "rejected"),
            added=_ids_of(row, "added"),
            proposed=tuple(_proposed_of(each) for each in _list_of(row, "proposed")),
        )
        entry._check()
        return entry

    def _check(self) -> None:
        if not (self.text_sha256 or self.document_id):
            raise DataError("of no text; expected one of text, text_sha256 and document_id")
        if self.text and not self.text.strip():
            raise DataError("text is blank; expected a text, or none beside its text_sha256")
        if not (self.right or self.rejected or self.proposed):
            raise DataError(
                "names no label; expected ids in accepted, rejected or added, or labels in proposed"
            )
        if both := set(self.right).intersection(self.rejected):
            raise DataError(
                f"label {sorted(both)[0][:100]!r} is right and rejected; expected one of the two"
            )


def sha256_of(text: str) -> str:
    """Return the hex sha256 of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


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
    label = ProposedLabel(string_of(value, "name").strip(), string_of(value, "id").strip() or None)
    if not any(sign.isalnum() for sign in label.name):
        raise DataError(f"proposed holds {shown(value)}; expected a name with a letter or a digit")
    return label
