"""From what a person sends to an entry: labels are looked up, texts are left out unless kept."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from longtail.models.errors import RequestError
from longtail.models.feedback import Entry, ProposedLabel, sha256_of
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.service.feedback.store import now
from longtail.service.schemas.feedback import FeedbackEntry


@dataclass(frozen=True, slots=True)
class Meant:
    """The model version that an entry is about.

    Attributes:
        version: Its number.
        digest: Of its bundle.
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

    Raises:
        RequestError: The version has no such label, or has one that is proposed as new.
    """
    check_labels(said, meant, where)
    return unchecked_entry(said, meant.version, meant.digest, who=who, keeps_text=keeps_text)


def unchecked_entry(
    said: FeedbackEntry, version: int, digest: str, *, who: str | None, keeps_text: bool
) -> Entry:
    """Return the entry to store of labels that were looked up.

    Args:
        said: What came.
        version: The model version that is meant.
        digest: Of its bundle.
        who: Name of the key that it came with.
        keeps_text: Whether the text is kept.
    """
    text_sha256 = said.text_sha256 if said.text is None else sha256_of(said.text)
    return Entry(
        id=said.id or secrets.token_hex(16),
        given_at=now(),
        who=who,
        version=version,
        model_digest=digest,
        document_id=said.document_id,
        text=said.text if keeps_text else None,
        text_sha256=text_sha256,
        accepted=tuple(said.accepted),
        rejected=tuple(said.rejected),
        added=tuple(said.added),
        proposed=tuple(ProposedLabel(label.name, label.id) for label in said.proposed),
        promised=tuple(dict.fromkeys(said.promised)),
        promised_precision=said.promised_precision,
    )


def check_labels(said: FeedbackEntry, meant: Meant, where: str = "") -> None:
    """Refuse ids that the version does not have, and new labels that it has.

    Raises:
        RequestError: There is such an id.
    """
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
