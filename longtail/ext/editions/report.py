"""Changes of a vocabulary as lines of text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from longtail.ext.editions.changes import (
    Deprecation,
    Renaming,
    Reparenting,
    Replacement,
    VocabularyChanges,
)
from longtail.models.labels.catalogue import Label

MAX_EXAMPLES = 5
_MAX_CHARACTERS = 60


def report_lines(changes: VocabularyChanges) -> Iterator[str]:
    """Yield how many changes of each kind there are, and the first few of them."""
    gone = [each for each in changes.deprecated if each.is_gone]
    still_there = [each for each in changes.deprecated if not each.is_gone]
    yield from _section("new", changes.new, _named)
    yield from _section("renamed", changes.renamed, _renamed)
    yield from _section("merged", changes.merged, _replaced)
    yield from _section("split", changes.split, _replaced)
    yield from _section("deprecated", still_there, _named)
    yield from _section("gone", gone, _named)
    yield from _section("restored", changes.restored, str)
    yield from _section("re-parented", changes.reparented, _moved)


def _section(kind: str, found: Sequence[Any], line_of: Callable[[Any], str]) -> Iterator[str]:
    yield f"{kind + ':':<13}{len(found):,}"
    yield from (f"  {line_of(each)}" for each in found[:MAX_EXAMPLES])
    if len(found) > MAX_EXAMPLES:
        yield f"  and {len(found) - MAX_EXAMPLES:,} more"


def _named(label: Label | Deprecation) -> str:
    return f"{label.id}  {_shown(label.name)}"


def _renamed(found: Renaming) -> str:
    name = next(iter(found.after))
    before, after = _shown(found.before[name]), _shown(found.after[name])
    others = ", ".join(list(found.after)[1:])
    return f"{found.id}  {name}: {before} -> {after}" + (f"; also {others}" if others else "")


def _replaced(found: Replacement) -> str:
    gone = " (gone)" if found.is_gone else ""
    return f"{found.id}  {_shown(found.name)}{gone} -> {', '.join(found.by)}"


def _moved(found: Reparenting) -> str:
    before, after = (", ".join(some) or "the top" for some in (found.before, found.after))
    return f"{found.id}  below {before} -> {after}"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."
