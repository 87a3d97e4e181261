"""Feedback: what people say of the labels of texts."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from longtail.models.feedback import ProposedLabel
from longtail.models.options import Listed, Version
from longtail.models.parts.texts import joined_text
from longtail.service.schemas.base import SURROGATE, Answer, Asked, ModelReference, Text, Title

MAX_LABELS = 1000
"""Label ids in one list of an entry."""
MAX_ID_CHARACTERS = 200
PLAIN = r"^[^\x00-\x1f\x7f]+$"
"""Pattern of ids and names: no control characters."""


def _check_unicode(value: str) -> str:
    """Return what can be written in UTF-8, unchanged."""
    if SURROGATE.search(value):
        raise PydanticCustomError(
            "text_surrogate", "The text holds half of a surrogate pair; send valid Unicode"
        )
    return value


def _check_says_something(value: str) -> str:
    """Return a name that has a letter or a digit, without blanks around it."""
    if not any(sign.isalnum() for sign in value):
        raise PydanticCustomError(
            "name_blank", "The name has neither a letter nor a digit; send the label's name"
        )
    return value.strip()


_Unicode = AfterValidator(_check_unicode)
_SaysSomething = AfterValidator(_check_says_something)
EntryId = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARACTERS, pattern=PLAIN), _Unicode]
LabelId = Annotated[str, Field(min_length=1, max_length=2000), _Unicode]
LabelIds = Annotated[list[LabelId], Field(max_length=MAX_LABELS, fail_fast=True)]


class NewLabel(Asked):
    """A label that is right and that the model lacks."""

    name: Annotated[
        str, Field(min_length=1, max_length=1000, pattern=PLAIN), _Unicode, _SaysSomething
    ]
    """What people read; with a letter or a digit."""
    id: LabelId | None = None
    """The identifier that it should have; no label of the version may have it. Absent: open."""


class FeedbackEntry(BaseModel):
    """What a person says of the labels of one text."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
        json_schema_extra={
            "examples": [
                {
                    "id": "review-2041",
                    "text": "Duties on imports of olive oil",
                    "accepted": ["1264"],
                    "rejected": ["2136"],
                    "added": ["1309"],
                }
            ]
        },
    )

    id: EntryId | None = None
    """Names the entry: sent again with the same text and labels, it is acknowledged again and
    stored once. Absent: one is made, and what is sent twice is stored twice."""
    text: Text | None = None
    """The text. It is kept only where the service is set to; its SHA-256 always is."""
    title: Title = None
    """Title of `text`, which is joined with it as in `/v1/predict`: both are kept as one text, and
    the SHA-256 is that of it."""
    text_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Instead of the text: its SHA-256 (UTF-8), in hexadecimal."""
    document_id: EntryId | None = None
    """The caller's name of the text; enough by itself."""
    accepted: LabelIds = []
    """Ids of labels that the model found and that are right."""
    rejected: LabelIds = []
    """Ids of labels that the model found and that are wrong."""
    added: LabelIds = []
    """Ids of labels of the model that it did not find and that are right."""
    proposed: Annotated[list[NewLabel], Field(max_length=MAX_LABELS, fail_fast=True)] = []
    """Labels that are right and that the model lacks."""
    promised: LabelIds = []
    """Ids of the labels in `accepted` and `rejected` that the answer had marked as `accepted` by a
    promise of precision: they tell whether it is kept."""
    promised_precision: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The precision that this promise is of, such as 0.95; with `promised` only, and always."""
    version: Version | None = None
    """The model version that answered, a number or `current`; the service's first where absent."""

    @property
    def num_labels(self) -> int:
        """Labels in all its lists."""
        of_ids = (self.accepted, self.rejected, self.added, self.promised)
        return len(self.proposed) + sum(map(len, of_ids))

    @property
    def verdicts(self) -> dict[str, Any]:
        """The fields of an `Entry` that say what labels are."""
        return {
            "accepted": tuple(self.accepted),
            "rejected": tuple(self.rejected),
            "added": tuple(self.added),
            "proposed": tuple(ProposedLabel(label.name, label.id) for label in self.proposed),
            "promised": tuple(dict.fromkeys(self.promised)),
            "promised_precision": self.promised_precision,
        }

    @model_validator(mode="after")
    def _says_something_of_a_text(self) -> Self:
        if self.text is None and self.text_sha256 is None and self.document_id is None:
            raise PydanticCustomError(
                "feedback_of_nothing", "Give one of 'text', 'text_sha256' and 'document_id'"
            )
        if self.text is not None and self.text_sha256 is not None:
            raise PydanticCustomError("text_or_sha256", "Give only one of 'text' and 'text_sha256'")
        if self.title is not None and self.text is None:
            raise PydanticCustomError(
                "title_without_text",
                "Give 'title' with 'text' only; 'text_sha256' is that of both, with a line feed "
                "between them",
            )
        named = [*self.accepted, *self.rejected, *self.added]
        if not named and not self.proposed:
            raise PydanticCustomError(
                "feedback_without_labels",
                "Name a label in one of 'accepted', 'rejected', 'added' and 'proposed'",
            )
        if len(set(named)) < len(named):
            raise PydanticCustomError(
                "feedback_names_twice",
                "Name each label once, in one of 'accepted', 'rejected' and 'added'",
            )
        if not set(self.promised) <= {*self.accepted, *self.rejected}:
            raise PydanticCustomError(
                "feedback_promised", "Name labels of 'promised' in 'accepted' or 'rejected', too"
            )
        if bool(self.promised) != (self.promised_precision is not None):
            raise PydanticCustomError(
                "feedback_promised_precision", "Give 'promised' and 'promised_precision' together"
            )
        return self

    @property
    def whole_text(self) -> str | None:
        """The text, its title joined; None where none is given."""
        return None if self.text is None else joined_text(self.title, self.text)


class FeedbackRequest(Asked):
    """Entries that are stored together, or not at all."""

    entries: Listed[FeedbackEntry] = Field(min_length=1)
    """At most 100."""


class FeedbackReceipt(Answer):
    """What became of one entry."""

    id: str
    """Its own, or the one that was made for it."""
    status: Literal["stored", "known"]
    """`known`: it was stored before, and is not stored twice."""
    model: ModelReference
    """The version whose labels were looked up."""


class FeedbackReceipts(Answer):
    """Entries that are on the disk, in the order in which they were sent."""

    entries: list[FeedbackReceipt]
    keeps_texts: bool
    """Whether texts are kept, and not only their SHA-256."""


class FeedbackDeleted(Answer):
    """An entry that is no more."""

    id: str
    """It stays taken, so that the entry does not come back when it is sent again."""
