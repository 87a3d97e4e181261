"""Words of label names and of texts, in the one form in which they are compared.

A word is a run of letters and digits, in its compared form (`WordForms`); of a script that puts no
spaces between words, every character is a word. Hyphens and other signs only separate words, so
"decision-making" is "decision making". Only the dot of a code joins: "N53.77" is "n5377", so that
it is not found by half in "E12.77".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32, Int64

from longtail.models.scorers.character_terms import MARKS, UNSPACED_SCRIPTS
from longtail.models.scorers.markup import without_markup
from longtail.models.scorers.tfidf import spaced
from longtail.models.scorers.word_forms import WordForms

END_OF_SENTENCE = "\0"
"""Stands between two sentences among the pieces of a text."""
UNKNOWN = -1
"""Stands for a word that no name has."""
SENTENCE_END = -2
"""Stands between two sentences among their numbers."""

_ENDS_OF_OTHERS = "\u3002\uff01\uff1f"  # of scripts without spaces
# A charset comes first, so that all else is skipped fast. No dot of an abbreviation ("U.S.",
# "e.g.") ends a sentence.
_END = re.compile(rf"[.!?;\n{_ENDS_OF_OTHERS}](?<!\.\w\.)(?:(?=\s|$)|(?<=[{_ENDS_OF_OTHERS}]))")
_DOT_OF_CODE = re.compile(
    r"\.(?=\d)(?:(?<=[a-z]\d\.)|(?<=[a-z]\d\d\.)|(?<=[a-z]\d\d\d\.))", re.ASCII
)
_OTHERS = re.compile(rf"_|[^\w\s{MARKS}{UNSPACED_SCRIPTS}{END_OF_SENTENCE}]")
_SPACES = bytes(32 if code < 128 and _OTHERS.match(chr(code)) else code for code in range(256))
_UNSPACED = re.compile(f"([{UNSPACED_SCRIPTS}])")
_MAX_KEPT_FORMS = 2**18


@dataclass(frozen=True, slots=True)
class ReadText:
    """A text as names are looked for in it.

    Attributes:
        words: The number of each word, with `UNKNOWN` and `SENTENCE_END`.
        title_length: How many of them are its title: its first line, or its first sentence.
    """

    words: Int32[np.ndarray, piece]
    title_length: int


class NameWords:
    """Numbers the words of label names, and reads texts as such numbers."""

    def __init__(
        self,
        words: Iterable[str],
        languages: Sequence[str] = (),
        *,
        removes_markup: bool = False,
    ) -> None:
        """Number the words.

        Args:
            words: In their compared form, each once.
            languages: Languages of texts and names (`WordForms`).
            removes_markup: Whether texts, not names, are to be read without HTML.
        """
        self._removes_markup = removes_markup
        self.words = tuple(words)
        self.forms = WordForms(languages)
        self._numbers = {word: number for number, word in enumerate(self.words)}
        assert len(self._numbers) == len(self.words)
        self._by_form: dict[str, int | tuple[int, ...]] = {}

    @classmethod
    def of_names(
        cls,
        names: Iterable[str],
        languages: Sequence[str] = (),
        *,
        removes_markup: bool = False,
    ) -> NameWords:
        """Return the words of names, in the order of the alphabet."""
        forms = set(_pieces_of_names(names)) - {END_OF_SENTENCE}
        words = sorted(set(WordForms(languages).of_list(list(forms))))
        return cls(words, languages, removes_markup=removes_markup)

    def __len__(self) -> int:
        return len(self.words)

    def cleaned(self, text: str) -> str:
        """Return a text as it is to be read: without HTML, where that is removed."""
        return without_markup(text) if self._removes_markup else text

    def read(self, text: str) -> Int32[np.ndarray, piece]:
        """Return the number of each word of a text, with `UNKNOWN` and `SENTENCE_END`.

        A compound that no name has as a word is read as the parts that names have.
        """
        if len(self._by_form) > _MAX_KEPT_FORMS:
            self._by_form = {}
        known, found = self._by_form, pieces(text)
        with suppress(TypeError):  # of a piece that is not known yet, or the parts of a compound
            return np.fromiter(map(known.get, found), np.int32, len(found))
        new = list({*found}.difference(known))
        known.update(zip(new, map(self._number, new, self.forms.of_list(new)), strict=True))
        read = list(map(known.get, found))
        return np.array(_flat(read) if tuple in map(type, read) else read, dtype=np.int32)

    def read_text(self, text: str) -> ReadText:
        """Return a text as names are looked for in it."""
        text = self.cleaned(text).strip()
        words = self.read(text)
        line, _, rest = text.partition("\n")
        if rest:
            return ReadText(words, len(self.read(line)))
        ends = np.flatnonzero(words == SENTENCE_END)
        return ReadText(words, int(ends[0]) if len(ends) else len(words))

    def read_names(
        self, names: Iterable[str], max_words: int
    ) -> tuple[Int64[np.ndarray, name_and_one], Int32[np.ndarray, word]]:
        """Read all names at once, which is several times as fast as one after the other.

        Args:
            names: Any number.
            max_words: Words of a name beyond are left out.

        Returns:
            Where the words of each name begin, and where the last one's end; and their numbers.
        """
        read = _pieces_of_names(names)
        unique = list(dict.fromkeys(read))
        numbers = dict(
            zip(unique, map(self._number, unique, self.forms.of_list(unique)), strict=True)
        )
        found = np.array(_flat([numbers[piece] for piece in read]), dtype=np.int32)
        name_of_word = np.cumsum(found == SENTENCE_END)  # an end is before each name
        name_of_word, found = name_of_word[found >= 0], found[found >= 0]
        starts = np.searchsorted(name_of_word, np.arange(1, read.count(END_OF_SENTENCE) + 2))
        is_kept = np.arange(len(found)) - starts[name_of_word - 1] < max_words
        kept_before = np.concatenate([[0], np.cumsum(is_kept)])
        return kept_before[starts].astype(np.int64), found[is_kept]

    def _number(self, piece: str, form: str) -> int | tuple[int, ...]:
        """Return the number of a piece of that form, or those of the parts of a compound."""
        if piece == END_OF_SENTENCE:
            return SENTENCE_END
        found = self._numbers.get(form)
        if found is not None:
            return found
        return self.forms.parts(piece, self._numbers.get) or UNKNOWN


def _flat(read: Sequence[int | tuple[int, ...] | None]) -> list[int | None]:
    """Return numbers in a row, those of the parts of compounds among the others."""
    return [x for each in read for x in (each if isinstance(each, tuple) else (each,))]


def pieces(text: str) -> Sequence[str]:
    """Return the lower-case words of a text, and `END_OF_SENTENCE` for each end, in order."""
    joined = _DOT_OF_CODE.sub("", text.lower().replace(END_OF_SENTENCE, "\1"))
    return _split(_END.sub(f" {END_OF_SENTENCE} ", joined))


def _pieces_of_names(names: Iterable[str]) -> list[str]:
    """Return the lower-case words of names, with `END_OF_SENTENCE` before those of each name."""
    separator = f" {END_OF_SENTENCE} "
    joined = "".join(separator + name.replace(END_OF_SENTENCE, "\1") for name in names)
    return _split(_DOT_OF_CODE.sub("", joined.lower()))


def _split(text: str) -> list[str]:
    found, beyond = spaced(text, _SPACES, _OTHERS)
    return (_UNSPACED.sub(r" \1 ", found) if _UNSPACED.search(beyond) else found).split()
