"""Terms of texts that don't put spaces between words: character n-grams, and the words beside them.

Training, serving and explanations all read texts by `placed_terms`, so they agree.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

LENGTHS = (1, 2, 3)
"""Characters of the n-grams."""

UNSPACED_SCRIPTS = (
    "\u3005-\u3007\u3031-\u3035\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001b000-\U0001b16f"  # kana
    "\u3105-\u312f"  # Bopomofo
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e80-\u0ecf\u0edc-\u0edf"  # Thai, Lao
    "\u0f40-\u0fbc"  # Tibetan
    "\u1000-\u103f\u1050-\u109f\ua9e0-\ua9ef\uaa60-\uaa7f"  # Myanmar
    "\u1780-\u17d3\u17dc\u17dd"  # Khmer
    "\u1980-\u19df\u1a20-\u1aad\u1b00-\u1b4b\ua980-\ua9c0"  # Tai, Balinese, Javanese
)
MARKS = "".join(
    chr(code)
    for codes in (range(0x300, 0x1E00), range(0xA600, 0xAC00))
    for code in codes
    if unicodedata.category(chr(code)).startswith("M")
)
"""Vowel signs and accents that stand alone: parts of a word that `\\w` does not take for one."""
_RUNS = re.compile(rf"(?P<unspaced>[{UNSPACED_SCRIPTS}]+)|(?:(?![{UNSPACED_SCRIPTS}])[\w{MARKS}])+")
_UNSPACED = re.compile(f"[{UNSPACED_SCRIPTS}]+")
_WORD_CHARACTER = re.compile(r"\w")
_LETTERS = re.compile(r"[^\W\d_]+")
_ASCII_OTHERS = bytes(code for code in range(128) if not chr(code).isalpha())


def placed_terms(lowered: str) -> Iterator[tuple[str, int, int]]:
    """Give the terms of a lower-case text, each with its first character and the one behind it.

    They are the n-grams of every run of letters, digits and marks; and of a script with spaces, the
    whole run where it is longer.

    Yields:
        Term, start, stop: in rising order of length within a run.
    """
    for run in _RUNS.finditer(lowered):
        begin, end = run.span()
        for length in LENGTHS:
            for start in range(begin, end - length + 1):
                yield lowered[start : start + length], start, start + length
        if end - begin > LENGTHS[-1] and run["unspaced"] is None:
            yield run.group(), begin, end


def words_of(text: str) -> list[str]:
    """Return the words of a text, in scripts without spaces its characters; all are terms."""
    words: list[str] = []
    for run in _RUNS.finditer(text.lower()):
        words += [run.group()] if run["unspaced"] is None else run.group()
    return words


def has_word(text: str) -> bool:
    """Whether a text has a letter or a digit: without one no word is read of it."""
    return _WORD_CHARACTER.search(text) is not None


class LetterCount:
    """Counts the letters of texts, and those of scripts without spaces between words."""

    def __init__(self) -> None:
        """Start with no letters."""
        self._num_letters = 0
        self._num_unspaced = 0

    def add(self, text: str) -> None:
        """Count the letters of a text."""
        if text.isascii():
            self._num_letters += len(text.encode().translate(None, _ASCII_OTHERS))
        else:
            self._num_letters += sum(map(len, _LETTERS.findall(text)))
            unspaced = "".join(_UNSPACED.findall(text))
            self._num_unspaced += sum(map(len, _LETTERS.findall(unspaced)))

    @property
    def unspaced_share(self) -> float:
        """Which share of the letters are of scripts without spaces; 0 without letters."""
        return self._num_unspaced / max(1, self._num_letters)


def unspaced_share(texts: Iterable[str]) -> float:
    """Return which share of the letters of texts are of scripts without spaces between words."""
    count = LetterCount()
    for text in texts:
        count.add(text)
    return count.unspaced_share
