"""Which of some words the files of a version hold: `longtail registry verify --words FILE`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported inside the command, so that --help stays fast
    from collections.abc import Sequence

    from longtail.models.parts.audit import Finding


def read_words(path: Path) -> list[str]:
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


def refuse_words(found: Sequence[Finding], number: int, words: Path, num_words: int) -> None:
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
