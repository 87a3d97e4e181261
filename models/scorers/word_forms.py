"""The form in which words are compared: without accents and, by language, without inflection."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache

from Stemmer import Stemmer

ENGLISH = "en"
STEMMERS = {
    "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek",
    "es": "spanish", "et": "estonian", "eu": "basque", "fi": "finnish", "fr": "french",
    "hu": "hungarian", "it": "italian", "lt": "lithuanian", "nl": "dutch", "no": "norwegian",
    "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sv": "swedish",
    "tr": "turkish",
}  # fmt: skip
"""Snowball's algorithm of each language but English, by ISO 639 code."""
COMPOUNDING = frozenset({"da", "de", "fi", "nl", "no", "sv"})
"""Languages that write compounds as one word."""
_LEAST_PART = 4
"""Letters of the shortest part of a compound."""
_LONGEST_COMPOUND = 48
"""Letters; the time to take a longer run of letters apart would grow as their square."""
_MAX_KEPT = 2**16
"""Words whose forms are kept."""
_LEAST_PLURAL = 4
"""Letters of the shortest word that can be a plural."""


def singular(word: str) -> str:
    """Return a lower-case word without an English plural's ending (S-stemmer of Harman, 1991).

    It errs on the side of leaving words as they are; of what it changes, names and texts are
    changed alike.
    """
    if len(word) < _LEAST_PLURAL or not word.endswith("s") or word.endswith(("us", "ss", "is")):
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("ches", "shes", "sses", "xes")) else word[:-1]


def without_accents(word: str) -> str:
    """Return a word with its letters' accents taken off; letters of other kinds stay."""
    if word.isascii():
        return word
    taken_apart = unicodedata.normalize("NFKD", word)
    return "".join(each for each in taken_apart if not unicodedata.combining(each))


class WordForms:
    """Compares words of a corpus' languages without their inflection: `of` gives a word's form.

    English words lose a plural's ending, words of other languages are stemmed (Snowball). In a
    corpus of several languages every word goes through all of their stemmers, so that it has the
    same form in a name and in a text, whatever the language around it.
    """

    def __init__(self, languages: Sequence[str] = ()) -> None:
        """Take the languages.

        Args:
            languages: ISO 639 codes: "en" or one of `STEMMERS`; none: as English.
        """
        # Names keep the forms of words themselves: without a cache, a stemmer has nothing to share.
        self._stems = [
            Stemmer(STEMMERS[each], 0).stemWords for each in languages if each != ENGLISH
        ]
        self.of = lru_cache(_MAX_KEPT)(self._of)
        self._has_plurals = not languages or ENGLISH in languages
        self.languages = tuple(languages)
        self._has_compounds = not COMPOUNDING.isdisjoint(languages)

    @property
    def has_stems(self) -> bool:
        """Whether a language other than English is among them."""
        return bool(self._stems)

    def of_all(self, words: str) -> str:
        """Return the forms of one or more words with spaces between."""
        return " ".join(map(self.of, words.split(" ")))

    def of_list(self, words: Sequence[str]) -> list[str]:
        """Return the form of each lower-case word, faster than one by one; none is kept."""
        found = list(words)
        if self._stems:
            found = [x if x.isascii() else unicodedata.normalize("NFC", x) for x in found]
            found = list(map(singular, found)) if self._has_plurals else found
            for stem in self._stems:
                found = stem(found)
        found = list(map(without_accents, found))
        return list(map(singular, found)) if self._has_plurals else found

    def _of(self, word: str) -> str:
        return self.of_list((word,))[0]

    def parts(self, word: str, number_of: Callable[[str], int | None]) -> tuple[int, ...]:
        """Return the known words that a compound is wholly made of; none if there are not any.

        The last part, which tells the kind, is as long as can be, and so on.

        Args:
            word: A lower-case word that is not known.
            number_of: Gives the number of a form, None if it is not known.
        """
        if not self._has_compounds or len(word) > _LONGEST_COMPOUND:
            return ()
        for start in range(_LEAST_PART, len(word) - _LEAST_PART + 1):
            last = number_of(self.of(word[start:]))
            if last is None:
                continue
            first = number_of(self.of(word[:start]))
            before = self.parts(word[:start], number_of) if first is None else (first,)
            if before:
                return (*before, last)
        return ()


AS_WRITTEN = WordForms()
"""Forms without stems."""


def languages_of(codes: Sequence[str]) -> tuple[str, ...]:
    """Return the languages that a bundle names."""
    if unknown := set(codes) - {ENGLISH, *STEMMERS}:
        raise ValueError(f"languages {sorted(unknown)}, expected of {[ENGLISH, *STEMMERS]}")
    return tuple(codes)
