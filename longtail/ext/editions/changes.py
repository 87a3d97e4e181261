"""Changes between two states of a vocabulary, and their JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from pydantic import ConfigDict

from longtail.models.errors import DataError
from longtail.models.files.typed_json import json_forms
from longtail.models.labels.catalogue import Label

TEXT_FIELDS = ("name", "names", "alternative_names", "description", "notation", "scheme")
"""Fields of a label that are its texts, and the names of its schemes."""
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Renaming:
    """A label whose texts or schemes have changed.

    Attributes:
        id: Id of the label.
        before: The changed texts as they were, by the name of the field in `TEXT_FIELDS`.
        after: The texts as they are now.
    """

    __pydantic_config__: ClassVar = _STRICT
    id: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Replacement:
    """A label that is out of use, and its replacements.

    Attributes:
        id: Id of the label.
        name: Its old name.
        by: Ids of its replacements, which are in use: one if merged, several if split.
        is_gone: Whether it is missing from the new vocabulary.
    """

    __pydantic_config__: ClassVar = _STRICT
    id: str
    name: str
    by: tuple[str, ...]
    is_gone: bool


@dataclass(frozen=True, slots=True)
class Deprecation:
    """A label that is out of use, without a replacement.

    Attributes:
        id: Id of the label.
        name: Its old name.
        is_gone: Whether it is missing from the new vocabulary.
    """

    __pydantic_config__: ClassVar = _STRICT
    id: str
    name: str
    is_gone: bool


@dataclass(frozen=True, slots=True)
class Reparenting:
    """A label whose position in the hierarchy has changed.

    Attributes:
        id: Id of the label.
        before: Ids of its former parents.
        after: Ids of its parents now.
    """

    __pydantic_config__: ClassVar = _STRICT
    id: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VocabularyChanges:
    """The changes of a new state of a vocabulary; each list is sorted by id.

    A label that is both renamed and re-parented is in both lists.

    Attributes:
        new: Labels that the old state doesn't have; their `broader` are ids.
        renamed: Labels with changed texts or schemes.
        merged: Labels that were replaced by one label.
        split: Labels that were replaced by several labels.
        deprecated: Labels that are out of use without a replacement.
        restored: Ids of labels that were out of use, and are in use again.
        reparented: Labels with other parents.
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
            text: Text of the file.
            where: Its name, for messages.
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
    forms = {"names": dict, "alternative_names": list, "scheme": list}
    for name, value in renaming.after.items():
        values = value.values() if isinstance(value, dict) else value
        is_text = name in TEXT_FIELDS and isinstance(value, forms.get(name, str))
        if not is_text or not all(isinstance(x, str) for x in values):
            raise DataError(
                f"{where}: renamed label {renaming.id!r}: {name} is {value!r}; expected a text, a "
                f"list or an object of texts, of {', '.join(TEXT_FIELDS)}"
            )
