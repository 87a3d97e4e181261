"""The queue of documents to label."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from longtail.service.schemas.base import Answer
from longtail.service.schemas.feedback import PLAIN, EntryId


class NextRequest(BaseModel):
    """Who asks for a document to label."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
        json_schema_extra={"examples": [{"annotator": "desk-3"}]},
    )

    annotator: Annotated[str, Field(min_length=1, max_length=100, pattern=PLAIN)]
    """Made up by who asks, and the same each time: as long as it has a document that is not done,
    it gets that one."""
    skip: EntryId | None = None
    """`document_id` of the document to set aside: it goes to the end of the queue. Of one that the
    annotator does not have nothing is done."""


class DocumentToLabel(Answer):
    """A document of the queue."""

    document_id: str
    """Send it with the feedback; made of the text where the queue's file has no id."""
    text: str


class NextDocument(Answer):
    """The document to label next, and what is left."""

    document: DocumentToLabel | None
    """Null where none is left, or others have all that are."""
    lease_s: float
    """Seconds until somebody else may get it; asking again begins them anew."""
    total: int
    """Documents of the queue."""
    done: int
    """Those that feedback was given about, by whomever."""
    taken: int
    """Those that others have at the moment."""
