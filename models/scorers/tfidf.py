"""Tf-idf of texts: words, phrases or character n-grams, weighted, each row at unit length."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, cast

import numpy as np
from jaxtyping import Float32, Int32, Int64
from pydantic import Field
from scipy.sparse import csr_array

from longtail.models.errors import BundleCorruptError
from longtail.models.files.durable import MANY_ELEMENTS
from longtail.models.files.typed_json import json_forms
from longtail.models.matrices import Rows, of_one_type
from longtail.models.names import MAX_NGRAM, MAX_TITLE_WEIGHT
from longtail.models.native.library import RowsLike
from longtail.models.scorers.character_terms import placed_terms, words_of
from longtail.models.scorers.markup import without_markup
from longtail.models.scorers.word_forms import AS_WRITTEN, WordForms, languages_of

TOKEN_PATTERN = re.compile(r"(?u)\b\w\w+\b")
"""A word of at least two letters or digits, as scikit-learn's default."""
_ASCII = bytes(range(128))
_OTHERS = re.compile(r"[^\w\s]")
_SPACES = bytes(32 if code < 128 and _OTHERS.match(chr(code)) else code for code in range(256))
_MOST_REPLACED = 16
"""Different signs beyond ASCII that are replaced one after the other."""
TITLE = "title: "
"""Stands before a word that counts in titles alone; no word of a text has a space in it."""
Analyzer = Literal["word", "char"]
"""What a text is split into: words, or character n-grams (`models.scorers.character_terms`)."""
WORD: Analyzer = "word"
CHAR: Analyzer = "char"


@dataclass(frozen=True, slots=True)
class _Stored:
    tokens: list[str]
    languages: list[str]
    max_ngram: Annotated[int, Field(ge=1, le=MAX_NGRAM)]
    analyzer: Analyzer
    removes_markup: bool = False
    title_weight: Annotated[float, Field(gt=0, le=MAX_TITLE_WEIGHT)] | None = None


_, _read = json_forms(_Stored, max_elements=MANY_ELEMENTS)


def tokenize(text: str, forms: WordForms = AS_WRITTEN) -> list[str]:
    """Return the lower-case words of a text (`TOKEN_PATTERN`), or their forms if they are stems."""
    found, _ = spaced(text.lower(), _SPACES, _OTHERS)
    tokens = [token for token in found.split() if len(token) > 1]
    return list(map(forms.of, tokens)) if forms.has_stems else tokens


def spaced(text: str, spaces: bytes, others: re.Pattern[str]) -> tuple[str, str]:
    """Return a text with spaces for signs, and its characters beyond ASCII.

    Then splitting it finds the words, several times as fast as a pattern. Signs are what `others`
    matches; those of ASCII, as bytes, have their spaces in the table `spaces`.
    """
    encoded = text.encode("utf-8", "surrogatepass")
    found = encoded.translate(spaces).decode("utf-8", "surrogatepass")
    beyond = encoded.translate(None, _ASCII).decode("utf-8", "surrogatepass")
    signs = set(others.findall(beyond))
    if len(signs) > _MOST_REPLACED:
        return others.sub(" ", found), beyond
    for sign in signs:
        found = found.replace(sign, " ")
    return found, beyond


def terms_of(
    text: str, max_ngram: int, analyzer: Analyzer = WORD, forms: WordForms = AS_WRITTEN
) -> list[str]:
    """Return the words of a text, then its phrases of 2 to `max_ngram` words, spaces between.

    With the analyzer "char": its character n-grams, which have no stems and no phrases.
    """
    if analyzer == CHAR:
        return [term for term, _, _ in placed_terms(text.lower())]
    return with_phrases(tokenize(text, forms), max_ngram)


def with_phrases(words: list[str], max_ngram: int) -> list[str]:
    """Return words, then their phrases of 2 to `max_ngram` words, spaces between."""
    terms = words
    for length in range(2, max_ngram + 1):
        shifted = (words[start:] for start in range(length))
        terms = terms + [" ".join(phrase) for phrase in zip(*shifted, strict=False)]
    return terms


def title_end(text: str) -> int:
    """Return how many characters of a text are its title: its first line, if there are others.

    A text of one line has no title: 0.
    """
    end = text.find("\n", len(text) - len(text.lstrip()))
    return end if end >= 0 and not text[end:].isspace() else 0


class TfidfModel:
    """Turns texts into L2-normalised tf-idf rows over a fixed vocabulary.

    A value is (1 + ln tf) times idf, with idf = ln((1 + N) / (1 + df)) + 1 as in scikit-learn.
    Words of titles (`title_end`) may be features of their own besides: a text with a title has its
    row and, behind it, that of its title times a weight, both together at unit length.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        idf: Float32[np.ndarray, feature],
        languages: Sequence[str] = (),
        max_ngram: int = 1,
        analyzer: Analyzer = WORD,
        *,
        removes_markup: bool = False,
        title_weight: float | None = None,
    ) -> None:
        """Take the vocabulary and its weights.

        Args:
            tokens: The vocabulary in column order; words of titles, which begin with `TITLE`, last.
            idf: Inverse document frequency of each token.
            languages: The texts' languages. Where one is not English, words with the same form
                (`longtail.models.scorers.word_forms`) are one token: the shortest of them.
            max_ngram: Words of the longest phrase; with 1, all tokens are words.
            analyzer: What texts are taken apart into.
            removes_markup: Whether texts are read without HTML (`longtail.models.scorers.markup`).
            title_weight: Length of a title's row beside that of the whole text; None where no words
                of titles are features.
        """
        assert len(tokens) == len(idf)
        self.tokens = tuple(tokens)
        self.idf = idf
        self.forms = WordForms(languages)
        self.max_ngram = max_ngram
        self.analyzer: Analyzer = analyzer
        self.removes_markup = removes_markup
        self.title_weight = title_weight

    @cached_property
    def _columns(self) -> dict[str, int]:
        whole = self.tokens[: len(self.tokens) - len(self._title_columns)]
        return {form: column for column, form in enumerate(self._forms_of(whole))}

    @cached_property
    def _title_columns(self) -> dict[str, int]:
        if self.title_weight is None:
            return {}
        columns = [x for x, token in enumerate(self.tokens) if token.startswith(TITLE)]
        forms = self._forms_of([self.tokens[column].removeprefix(TITLE) for column in columns])
        return dict(zip(forms, columns, strict=True))

    def _forms_of(self, tokens: Sequence[str]) -> list[str]:
        """Return the form of each token (`form_of`), several times as fast as one by one."""
        if not self._is_stemmed:
            return list(tokens)
        words = list(dict.fromkeys(word for token in tokens for word in token.split(" ")))
        forms = dict(zip(words, self.forms.of_list(words), strict=True))
        return [" ".join([forms[word] for word in token.split(" ")]) for token in tokens]

    def form_of(self, token: str) -> str:
        """Return what a word or phrase counts as: itself, or its form if there are stems."""
        return self.forms.of_all(token) if self._is_stemmed else token

    @property
    def _is_stemmed(self) -> bool:
        return self.forms.has_stems and self.analyzer == WORD

    def token_of(self, term: str) -> str | None:
        """Return the token that a term of a text counts for; None: it is not in the vocabulary."""
        column = self._columns.get(term)
        return None if column is None else self.tokens[column]

    def title_token_of(self, term: str) -> str | None:
        """Return the token that a term of a title counts for besides; None: there is none."""
        column = self._title_columns.get(term)
        return None if column is None else self.tokens[column]

    def cleaned(self, text: str) -> str:
        """Return a text as all parts of the model read it: without HTML, where that is removed."""
        return without_markup(text) if self.removes_markup else text

    def transform(self, texts: Iterable[str]) -> Float32[csr_array, "document feature"]:
        """Return one row for each text; all zero where no token is in the vocabulary."""
        return self.matrix_of(self.read(texts)[0])

    def matrix_of(self, rows: Rows) -> Float32[csr_array, "document feature"]:
        """Return the rows of texts as a matrix."""
        shape = (len(rows.indptr) - 1, len(self.tokens))
        found = csr_array((rows.data, rows.indices, rows.indptr), shape=shape)
        found.has_canonical_format = True
        return found

    def read(self, texts: Iterable[str]) -> tuple[Rows, Int64[np.ndarray, "document 2"]]:
        """Return the rows of texts, and the words of each and those in the vocabulary.

        In scripts without spaces, characters are the words.
        """
        of_texts: list[Counter[int]] = []
        of_titles: list[Counter[int]] = []
        num_words = []
        for text in map(self.cleaned, texts):
            found, words, known = self._columns_of(text)
            of_texts.append(found)
            if self.title_weight is not None:
                title = tokenize(text[: title_end(text)], self.forms)
                of_titles.append(_counted(self._title_columns, title)[0])
            num_words.append((words, known))
        rows = self._weighted(of_texts)
        if any(of_titles):
            assert self.title_weight is not None
            rows = with_titles(rows, self._weighted(of_titles), self.title_weight)
        return rows, np.array(num_words, dtype=np.int64).reshape(-1, 2)

    def _weighted(self, found: Iterable[Counter[int]]) -> Rows:
        """Return a row at unit length for each text, by how often each token occurs in it."""
        columns: list[int] = []
        counts: list[int] = []
        ends = [0]
        for of_text in found:
            rising = sorted(of_text)
            columns += rising
            counts += map(of_text.__getitem__, rising)
            ends.append(len(columns))
        dtype = np.int32 if ends[-1] < 2**31 else np.int64
        indices, indptr = np.array(columns, dtype=dtype), np.array(ends, dtype=dtype)
        data = weighted_counts(np.array(counts, dtype=np.float32), indices, indptr, self.idf)
        return Rows(indptr, indices, data)

    def _columns_of(self, text: str) -> tuple[Counter[int], int, int]:
        """Return how often each token occurs in a text, its words, and those in the vocabulary."""
        if self.analyzer == CHAR:
            words, terms = words_of(text), terms_of(text, self.max_ngram, CHAR)
        else:
            words = tokenize(text, self.forms)
            terms = with_phrases(words, self.max_ngram)
        found, num_known = _counted(self._columns, terms)
        if terms is not words:
            num_known = sum(map(self._columns.__contains__, words))
        return found, len(words), num_known

    def is_phrase(self, column: int) -> bool:
        """Return whether a token is of more than one word, or a word of titles."""
        return self.analyzer == WORD and " " in self.tokens[column]

    def to_json(self) -> str:
        """Return all but the idf, which goes with the weights."""
        fields: dict[str, object] = {
            "tokens": self.tokens, "languages": self.forms.languages, "max_ngram": self.max_ngram,
            "analyzer": self.analyzer,
        }  # fmt: skip
        if self.removes_markup:
            fields["removes_markup"] = True
        if self.title_weight is not None:
            fields["title_weight"] = self.title_weight
        return json.dumps(fields, ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, idf: Float32[np.ndarray, feature]) -> TfidfModel:
        """Read what `to_json` wrote."""
        try:
            stored = _read(text)
            languages = languages_of(stored.languages)
        except ValueError as error:
            raise BundleCorruptError(f"sparse vocabulary: cannot be read ({error})") from error
        tokens = stored.tokens
        if len(tokens) != len(idf):
            raise BundleCorruptError(
                f"sparse vocabulary: {len(tokens)} tokens, but idf has {len(idf)} values"
            )
        found = cls(
            tokens, idf, languages, stored.max_ngram, stored.analyzer,
            removes_markup=stored.removes_markup, title_weight=stored.title_weight,
        )  # fmt: skip
        if len(found._columns) + len(found._title_columns) != len(tokens):
            raise BundleCorruptError("sparse vocabulary: a token occurs twice")
        if any(not token.startswith(TITLE) for token in tokens[len(found._columns) :]):
            raise BundleCorruptError("sparse vocabulary: words of titles are not the last tokens")
        return found


def _counted(columns: dict[str, int], terms: list[str]) -> tuple[Counter[int], int]:
    """Return how often each column occurs among terms, and how many terms have one."""
    found: Counter[int | None] = Counter(map(columns.get, terms))
    num_known = len(terms) - found.pop(None, 0)
    return cast(Counter[int], found), num_known


def with_titles(rows: RowsLike, titles: RowsLike, weight: float) -> Rows:
    """Return rows with those of their titles, times a weight, both together at unit length.

    Args:
        rows: Rows of whole texts, at unit length or empty; one without a title keeps its bits.
        titles: Likewise, in columns behind theirs.
        weight: Above 0.
    """
    sizes, title_sizes = (each.indptr[1:] - each.indptr[:-1] for each in (rows, titles))
    has_title = title_sizes > 0
    lengths = np.sqrt((sizes > 0) + (weight * has_title) ** 2)
    scales = np.where(has_title, 1 / np.maximum(lengths, np.finfo(np.float32).tiny), 1)
    indptr = rows.indptr.astype(np.int64) + titles.indptr
    indices, data = np.empty(indptr[-1], rows.indices.dtype), np.empty(indptr[-1], np.float32)
    for each, of_rows, scale, before in (
        (rows, sizes, scales, titles.indptr[:-1]),
        (titles, title_sizes, weight * scales, rows.indptr[1:]),
    ):
        places = np.arange(len(each.data)) + np.repeat(before, of_rows)
        indices[places] = each.indices
        data[places] = each.data * np.repeat(scale, of_rows).astype(np.float32)
    indices, indptr = of_one_type(indices, indptr, len(data))
    return Rows(indptr, indices, data)


def weigh_counts(
    counts: csr_array, idf: Float32[np.ndarray, feature]
) -> Float32[csr_array, "document feature"]:
    """Return (1 + ln count) x idf of each count, every row scaled to length one."""
    weighted = csr_array(counts, dtype=np.float32)
    if not weighted.has_canonical_format:
        weighted = weighted.copy()  # the arrays may be the caller's
        weighted.sum_duplicates()
    weighted.data = weighted_counts(weighted.data, weighted.indices, weighted.indptr, idf)
    return weighted


def weighted_counts(
    counts: Float32[np.ndarray, nonzero],
    indices: Int32[np.ndarray, nonzero] | Int64[np.ndarray, nonzero],
    indptr: Int32[np.ndarray, row_and_one] | Int64[np.ndarray, row_and_one],
    idf: Float32[np.ndarray, feature],
) -> Float32[np.ndarray, nonzero]:
    """Return the values of `weigh_counts`, of the arrays of a matrix by rows.

    Rows are scaled to the bit as `sklearn.preprocessing.normalize` does, which takes as much memory
    as all else of a model without an encoder, and a second to import.
    """
    values = (1 + np.log(counts)) * idf[indices]
    num_rows = len(indptr) - 1
    row_of = np.repeat(np.arange(num_rows), indptr[1:] - indptr[:-1])
    squares = np.bincount(row_of, weights=values * values, minlength=num_rows)
    lengths = np.sqrt(squares)  # summed one after the other, in float64
    lengths[lengths == 0] = 1
    found: Float32[np.ndarray, nonzero] = (values / lengths[row_of]).astype(np.float32)
    return found
