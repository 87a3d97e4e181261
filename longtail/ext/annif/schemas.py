"""Requests and answers of Annif's REST API."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel

from longtail.models.options import Listed
from longtail.service.schemas.base import Answer, Text, check_text
from longtail.service.schemas.feedback import MAX_LABELS, EntryId, LabelId

MAX_DOCUMENTS = 32


def _check_unless_blank(text: str) -> str:
    return check_text(text) if text.strip() else text


_Text = Annotated[str, Field(description="Input text."), AfterValidator(_check_unless_blank)]
_Metadata = Annotated[dict[str, str], Field(description="Read by no scorer.", max_length=1000)]


class SuggestOptions(BaseModel):
    """What to answer about a text."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    limit: int = Field(10, ge=0, le=2**31 - 1)
    """Most results to return."""
    threshold: float = Field(0.0, ge=0, le=1, allow_inf_nan=False)
    """Least score of a result."""
    language: str = ""
    """Language of the labels' names: the one of the service's setting, or empty."""


class SuggestForm(SuggestOptions):
    """A text, and what to answer about it; other fields are not looked at."""

    text: _Text


class AnnifDocument(BaseModel):
    """One text of several."""

    model_config = ConfigDict(strict=True, frozen=True)

    text: _Text
    document_id: str | None = None
    metadata: _Metadata = {}


class DocumentBatch(BaseModel):
    """Texts to label."""

    model_config = ConfigDict(frozen=True)

    documents: list[AnnifDocument] = Field(max_length=MAX_DOCUMENTS, fail_fast=True)


class Subject(BaseModel):
    """A label that is right; what Annif's clients send besides its URI is not looked at."""

    model_config = ConfigDict(strict=True, frozen=True, use_attribute_docstrings=True)

    uri: LabelId
    """The label's id."""


class IndexedDocument(BaseModel):
    """A text with its right labels."""

    model_config = ConfigDict(strict=True, frozen=True)

    text: Text
    subjects: list[Subject] = Field(min_length=1, max_length=MAX_LABELS, fail_fast=True)
    document_id: EntryId | None = None
    metadata: _Metadata = {}


class LearningBatch(RootModel[Listed[IndexedDocument]]):
    """Texts with their right labels."""

    model_config = ConfigDict(frozen=True)


class ApiInfo(Answer):
    """Name and release of the service."""

    title: str
    version: str
    """Release of Longtail, not of Annif."""


class Vocabulary(Answer):
    """The labels of a model version."""

    vocab_id: str
    languages: list[str]
    size: int
    loaded: bool


class VocabularyList(Answer):
    """The labels of all loaded versions."""

    vocabs: list[Vocabulary]


class ProjectBackend(Answer):
    """How a project scores labels."""

    backend_id: str
    """A scorer."""


class ProjectInfo(Answer):
    """A model version and a scorer."""

    project_id: str
    name: str
    language: str
    backend: ProjectBackend
    vocab: Vocabulary
    vocab_language: str
    is_trained: bool
    modification_time: str | None
    """When the version was published (ISO 8601, UTC)."""


class ProjectList(Answer):
    """The projects that are listed."""

    projects: list[ProjectInfo]


class Suggestion(Answer):
    """A label that fits a text."""

    uri: str
    """The label's id."""
    label: str
    """The label's name."""
    notation: str | None
    """Always null."""
    score: float
    """From 0 to 1: the probability where the scorer has one, else the sigmoid of its score."""


class SuggestionList(Answer):
    """The labels of a text, best first."""

    results: list[Suggestion]


class DocumentSuggestions(SuggestionList):
    """The labels of one text of several."""

    document_id: str | None
