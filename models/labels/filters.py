"""Which labels a query may get, as it names them; `longtail.models.labels.selection` finds them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from longtail.models.errors import RequestError

_MAX_NAMED = 5
"""Unknown ids that an error names."""
_MAX_ID_CHARACTERS = 100


@dataclass(frozen=True, eq=False)
class LabelSet:
    """Labels under a name, for many queries and for all versions of a model.

    A version that lacks some of them takes the others. Two sets are equal where they are one
    object, so that a set of many labels is looked up once.

    Attributes:
        name: What queries call it.
        ids: Ids of the labels.
    """

    name: str
    ids: tuple[str, ...]

    @cached_property
    def digest(self) -> str:
        """A hash that is the same for the same labels, whatever their order."""
        return hashlib.sha256(json.dumps(sorted(self.ids)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class LabelFilter:
    """The labels that a query may get.

    Attributes:
        include: Ids of the only labels to return; None: all, or those of `include_set`.
        exclude: Ids of labels not to return, whether or not they are included.
        include_set: Labels to return besides `include`.
        exclude_set: Labels not to return besides `exclude`.
        under: Ids of labels: of all that is let through, only these and what is below them in
            the vocabulary; empty: no such condition.
        scheme: Only labels of this scheme are let through; None: no such condition.
    """

    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    include_set: LabelSet | None = None
    exclude_set: LabelSet | None = None
    under: tuple[str, ...] = ()
    scheme: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it lets every label through."""
        includes_all = self.include is None and self.include_set is None
        excludes_none = not self.exclude and self.exclude_set is None
        return includes_all and excludes_none and not self.under and self.scheme is None


def check_ids(ids: Iterable[str], known: Iterable[str], field: str) -> None:
    """Refuse ids that no label has."""
    unknown = dict.fromkeys(ids)
    for label_id in known:
        unknown.pop(label_id, None)
    if not unknown:
        return
    named = ", ".join(repr(name[:_MAX_ID_CHARACTERS]) for name in list(unknown)[:_MAX_NAMED])
    more = f" or {len(unknown) - _MAX_NAMED} more" if len(unknown) > _MAX_NAMED else ""
    raise RequestError(
        f"{field}: this version has no label with the id {named}{more}; leave such ids out, or "
        "put them into a stored set, of which a version takes those that it has"
    )


def check_set(name: str, size: int, num_known: int) -> None:
    """Refuse a set to include of which there is no label."""
    if not num_known:
        raise RequestError(
            f"include_set: this version has none of the {size} labels of the set {name!r}; choose "
            "another set or another version"
        )
