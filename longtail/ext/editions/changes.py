"""What has changed between two states of a vocabulary, and its form as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from pydantic import ConfigDict

from longtail.models.errors import DataError
from longtail.models.files.typed_json import json_forms
from longtail.models.labels.catalogue import Label

TEXT_FIELDS = ("name", "names", "alternative_names", "description", "notation")
"""Fields of a label that are its texts."""
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Renaming:
    """A label whose texts have changed.

    Attributes:
        id: Of the label.
        before: The texts that are others now, by the name of the field; each of `TEXT_FIELDS`.
        after: What they are now.
    """

    __pydantic_config__: ClassVar = _STRICT
    id: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Replacement:
    """A label that is out of use, and what is used instead.

    Attributes:
        id: Of the label.
        name: Its old name.
        by: Ids of labels that are in use: one where it was merged, several where it was split.
        is_gone: Whether the new vocabulary does not have it at all.
    """

    __pydantic_config__: ClassVar = _STRICT
    id: str
    name: str
    by: tuple[str, ...]
    is_gone: bool


@dataclass(frozen=True, slots=True)
class Deprecation:
    """A label that is out of use, without anything instead.

    Attributes:
        id: Of the label.
        name: Its old name.
        is_gone: Whether the new vocabulary does not have it at all.
    """

    __pydantic_config__: ClassVar = _STRICT
    id: str
    name: str
    is_gone: bool


@dataclass(frozen=True, slots=True)
class Reparenting:
    """A label that stands elsewhere in the hierarchy.

    Attributes:
        id: Of the label.
        before: Ids of the labels that were right above it.
        after: Ids of those that are.
    """

    __pydantic_config__: ClassVar = _STRICT
    id: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VocabularyChanges:
    """What a new state of a vocabulary changes; each list in the order of the ids.

    A label that is both renamed and re-parented stands in both lists.

    Attributes:
        new: Labels that the old state doesn't have; their `broader` are ids.
        renamed: Other texts.
        merged: Replaced by one label.
        split: Replaced by several labels.
        deprecated: Out of use, deprecated or gone.
        restored: Ids of labels that were out of use, and are in use again.
        reparented: Other broader labels.
    """

    __pydantic_config__: ClassVar = _STRICT
    new: tuple[Label, ...] = ()
    renamed: tuple[Renaming, ...] = ()
    merged: tuple[Replacement, ...] = ()
    split: tuple[Replacement, ...] = ()
    deprecated: tuple[Deprecation, ...] = ()
    restored: tuple[str, ...] = ()
    reparented: tuple[Reparenting, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything has changed."""
        return any(getattr(self, each.name) for each in fields(self))

    def to_json(self) -> str:
        """Return all of it, for `from_json`."""
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> VocabularyChanges:
        """Read what `to_json` wrote.

        Args:
            text: Of the file.
            where: Its name, for messages.

        Raises:
            DataError: It is something else.
        """
        try:
            found: VocabularyChanges = _from_json(text)
        except ValueError as error:
            raise DataError(
                f"{where}: {error}; expected what 'longtail vocabulary diff --json' wrote; write "
                "it again"
            ) from error
        for each in found.renamed:
            _check_texts(each, where)
        return found


def texts_of(renaming: Renaming) -> dict[str, object]:
    """Return the new texts of a label, for `dataclasses.replace`."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in renaming.after.items()
    }


_to_json, _from_json = json_forms(VocabularyChanges, exclude_defaults=True, max_elements=2**19)


def _check_texts(renaming: Renaming, where: str) -> None:
    forms = {"names": dict, "alternative_names": list}
    for name, value in renaming.after.items():
        values = value.values() if isinstance(value, dict) else value
        is_text = name in TEXT_FIELDS and isinstance(value, forms.get(name, str))
        if not is_text or not all(isinstance(x, str) for x in values):
            raise DataError(
                f"{where}: renamed label {renaming.id!r}: {name} is {value!r}; expected a text, a "
                f"list or an object of texts, of {', '.join(TEXT_FIELDS)}"
            )
