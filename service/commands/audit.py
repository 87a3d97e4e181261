"""`longtail registry log` and `audit`: who changed a registry, and which words a version holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.service.commands.options import (
    DEFAULT_REGISTRY,
    JsonOption,
    RegistryOption,
    VersionArgument,
    print_json,
)
from longtail.service.commands.registry import existing_registry, print_table

if TYPE_CHECKING:  # imported inside the commands, so that --help stays fast
    from longtail.models.parts.audit import Finding


def log(registry: RegistryOption = DEFAULT_REGISTRY, as_json: JsonOption = False) -> None:
    """List all changes of a registry: when (UTC), who, what, and what 'current' named then."""
    entries = existing_registry(registry).changes.entries()
    if as_json:
        print_json(entries)
        return
    print_table(
        ("WHEN", "WHO", "ACTION", "VERSION", "CURRENT", "DIGEST", "REQUEST"),
        [
            (
                each["at"],
                each.get("user") or f"key {each.get('key')}",
                each["action"],
                each["version"],
                f"{each['from'] or 'none'} -> {each['to'] or 'none'}",
                (each["digest"] or "unknown")[:12],
                each.get("request_id", ""),
            )
            for each in entries
        ],
    )


def audit(
    words: Annotated[
        Path, typer.Option(help="Text file in UTF-8 with words or names, such as those of persons.")
    ],
    version: VersionArgument = "current",
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: JsonOption = False,
) -> None:
    """Say which of some words the files of a version hold; exit status 1 if they hold any."""
    from longtail.models.parts.audit import audit_bundle

    wanted = _read_words(words)
    store = existing_registry(registry)
    number = store.resolve(version)
    found = list(audit_bundle(store.open(number), wanted))
    if as_json:
        print_json({"num_words": len(wanted), "findings": [asdict(each) for each in found]})
    elif found:
        rows = [(x.word, x.file, x.num_places, x.places[0], ", ".join(x.labels)) for x in found]
        print_table(("WORD", "FILE", "PLACES", "FIRST", "LABELS"), rows)
    else:
        print(f"Version {number} holds none of {len(wanted)} words.")
    _refuse(found, number, words, len(wanted))


def _refuse(found: Sequence[Finding], number: int, words: Path, num_words: int) -> None:
    """Let the command fail where words were found.

    Raises:
        BundleError: There are some.
    """
    from longtail.models.errors import BundleError

    if found:
        raise BundleError(
            f"version {number} holds {len({each.word for each in found})} of the {num_words} words "
            f"of {str(words)!r}; train again with 'confidential' and 'excluded_words', and remove "
            "this version"
        )


def _read_words(path: Path) -> list[str]:
    """Return the words of a list.

    Raises:
        ConfigError: It can't be read as UTF-8, or has none.
    """
    from longtail.models.errors import ConfigError
    from longtail.models.files.outputs import check_readable_file
    from longtail.models.parts.audit import words_of_list

    check_readable_file(path, "--words")
    try:
        words = words_of_list(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"--words {str(path)!r}: is not UTF-8; save it as UTF-8") from error
    if not words:
        raise ConfigError(f"--words {str(path)!r}: has no word of two letters or more; add some")
    return words
