"""The sparse model: tf-idf of words and phrases, a sparse weight vector a label (DEPL section 3.2).

Stored as plain arrays: a vocabulary (JSON) and CSR weights (safetensors); see `training.sparse`
for how they are learned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar, get_args

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize

from models.character_terms import num_words, placed_terms
from models.errors import BundleCorruptError
from models.ranking import NO_LABEL, Ranking, nothing
from models.sparse_scoring import best_of_rows, scores_of_labels

TOKEN_PATTERN = re.compile(r"(?u)\b\w\w+\b")
"""A word of at least two letters or digits, as scikit-learn's default."""

Analyzer = Literal["word", "char"]
"""What a text is taken apart into: words, or character n-grams (see `models.character_terms`)."""
WORD: Analyzer = "word"
CHAR: Analyzer = "char"

_ROWS_A_PART = 64  # that one thread ranks at a time
_Result = TypeVar("_Result")


def tokenize(text: str, lemmas: Mapping[str, str]) -> list[str]:
    """Return the lower-case words of a text, those with a lemma replaced by it."""
    tokens = TOKEN_PATTERN.findall(text.lower())
    return [lemmas.get(token, token) for token in tokens] if lemmas else tokens


def terms_of(
    text: str, lemmas: Mapping[str, str], max_ngram: int, analyzer: Analyzer = WORD
) -> list[str]:
    """Return the words of a text, then its phrases of 2 to `max_ngram` words, spaces between.

    With the analyzer "char": its character n-grams, which have no lemmas and no phrases.
    """
    if analyzer == CHAR:
        return [term for term, _, _ in placed_terms(text.lower())]
    words = tokenize(text, lemmas)
    terms = words
    for length in range(2, max_ngram + 1):
        shifted = (words[start:] for start in range(length))
        terms = terms + [" ".join(phrase) for phrase in zip(*shifted, strict=False)]
    return terms


class TfidfModel:
    """Turns texts into L2-normalised tf-idf rows over a fixed vocabulary.

    A value is (1 + ln tf) times idf, with idf = ln((1 + N) / (1 + df)) + 1 as in scikit-learn.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        idf: Float32[np.ndarray, "feature"],
        lemmas: Mapping[str, str] | None = None,
        max_ngram: int = 1,
        analyzer: Analyzer = WORD,
    ) -> None:
        """Take what is learned from the training documents.

        Args:
            tokens: The vocabulary in column order.
            idf: Inverse document frequency of each token.
            lemmas: Lemma of each surface form that has another one; the tokens are lemmas then.
            max_ngram: Words of the longest phrase; with 1, all tokens are words.
            analyzer: What texts are taken apart into.
        """
        assert len(tokens) == len(idf)
        self.tokens = tuple(tokens)
        self.idf = idf
        self.lemmas = dict(lemmas or {})
        self.max_ngram = max_ngram
        self.analyzer: Analyzer = analyzer

    @cached_property
    def _counter(self) -> CountVectorizer:
        return CountVectorizer(
            analyzer=self.terms,
            vocabulary={token: column for column, token in enumerate(self.tokens)},
        )

    def terms(self, text: str) -> list[str]:
        """Return all terms of a text, in the vocabulary or not."""
        return terms_of(text, self.lemmas, self.max_ngram, self.analyzer)

    def num_words(self, text: str) -> int:
        """Return how long a text is: its words, in scripts without spaces its characters."""
        return num_words(text) if self.analyzer == CHAR else len(tokenize(text, self.lemmas))

    def transform(self, texts: Iterable[str]) -> Float32[csr_array, "document feature"]:
        """Return one row for each text; all zero where no token is in the vocabulary."""
        return weigh_counts(csr_array(self._counter.transform(texts)), self.idf)

    def is_phrase(self, column: int) -> bool:
        """Return whether a token is of more than one word."""
        return self.max_ngram > 1 and " " in self.tokens[column]

    def to_json(self) -> str:
        """Return vocabulary, lemmas, phrase length and analyzer; the idf goes with the weights."""
        fields: dict[str, object] = {
            "tokens": self.tokens, "lemmas": self.lemmas, "max_ngram": self.max_ngram
        }  # fmt: skip
        if self.analyzer != WORD:  # which bundles of earlier releases do not name
            fields["analyzer"] = self.analyzer
        return json.dumps(fields, ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, idf: Float32[np.ndarray, "feature"]) -> TfidfModel:
        """Read what `to_json` wrote.

        Raises:
            BundleCorruptError: The fields or the number of tokens are not what was written.
        """
        try:
            fields = json.loads(text)
            tokens, lemmas = fields["tokens"], fields["lemmas"]
            max_ngram = int(fields["max_ngram"])
            analyzer = fields.get("analyzer", WORD)
        except (ValueError, KeyError, TypeError) as error:
            raise BundleCorruptError(f"sparse vocabulary: cannot be read ({error!r})") from error
        if analyzer not in get_args(Analyzer):
            raise BundleCorruptError(
                f"sparse vocabulary: analyzer {analyzer!r}, expected one of {get_args(Analyzer)}"
            )
        if len(tokens) != len(idf):
            raise BundleCorruptError(
                f"sparse vocabulary: {len(tokens)} tokens, but idf has {len(idf)} values"
            )
        return cls(tokens, idf, lemmas, max_ngram, analyzer)


def weigh_counts(
    counts: csr_array, idf: Float32[np.ndarray, "feature"]
) -> Float32[csr_array, "document feature"]:
    """Return (1 + ln count) x idf of each count, every row scaled to length one."""
    weighted = csr_array(counts, dtype=np.float32)
    if not weighted.has_canonical_format:
        weighted = weighted.copy()  # the arrays may be the caller's
        weighted.sum_duplicates()
    weighted.data = (1 + np.log(weighted.data)) * idf[weighted.indices]
    return csr_array(normalize(weighted, copy=False))


@dataclass(frozen=True)
class SparseModel:
    """Linear scores of labels over tf-idf features: f_sparse(x, l) = <phi_t(x), w_l> + b_l.

    Attributes:
        tfidf: The features phi_t.
        weights: One row w_l for each label with a classifier.
        bias: b_l of each row.
        labels: The label index of each row, rising; labels without training documents have none.
    """

    tfidf: TfidfModel
    weights: Float32[csr_array, "covered feature"]
    bias: Float32[np.ndarray, "covered"]
    labels: Int64[np.ndarray, "covered"]

    @cached_property
    def weights_by_feature(self) -> Float32[csr_array, "feature covered"]:
        """The weights transposed: a query then costs what its own tokens weigh, not all tokens."""
        return csr_array(self.weights.T)


class SparseSource:
    """The `Source` of one batch of tf-idf rows over a sparse model."""

    def __init__(
        self,
        model: SparseModel,
        features: Float32[csr_array, "batch feature"],
        *,
        bias: Float32[np.ndarray, "covered"] | None = None,
        num_threads: int = 1,
    ) -> None:
        """Bind the features to the model.

        Args:
            model: The classifiers.
            features: What they score.
            bias: Of each row, in the place of the model's; None: the model's.
            num_threads: That rank at the same time, where there are many rows.
        """
        self._model = model
        self._features = features
        self._bias = model.bias if bias is None else bias
        self._num_threads = num_threads

    @property
    def num_queries(self) -> int:
        """Rows of the batch."""
        return int(self._features.shape[0])

    @property
    def num_labels(self) -> int:
        """Number of labels with a classifier; 1 where there are none."""
        return max(1, len(self._model.labels))

    def top(self, rows: Int64[np.ndarray, "row"], m: int) -> Ranking:
        """Return the m best labels of these queries (see `Source.top`)."""
        model, k = self._model, min(m, len(self._model.labels))
        if not k:
            return nothing(len(rows), m)
        parts = self._in_parts(
            lambda part: best_of_rows(
                self._features[rows[part]], model.weights_by_feature, self._bias, k
            ),
            len(rows),
        )
        found = np.concatenate([labels for labels, _ in parts])
        scores = np.concatenate([scores for _, scores in parts])
        missing = ((0, 0), (0, m - k))
        return Ranking(
            labels=np.pad(model.labels[found], missing, constant_values=NO_LABEL),
            scores=np.pad(scores, missing, constant_values=-np.inf),
        )

    def score(
        self, rows: Int64[np.ndarray, "row"], labels: Int64[np.ndarray, "row m"]
    ) -> Float32[np.ndarray, "row m"]:
        """Return the scores of given labels (see `Source.score`)."""
        model = self._model
        if not len(model.labels):
            return np.full(labels.shape, -np.inf, dtype=np.float32)
        found = np.searchsorted(model.labels, labels)
        found = np.minimum(found, len(model.labels) - 1)
        parts = self._in_parts(
            lambda part: scores_of_labels(
                self._features[rows[part]], model.weights_by_feature, self._bias, found[part]
            ),
            len(rows),
        )
        scores: Float32[np.ndarray, "row m"] = np.concatenate(parts)
        scores[model.labels[found] != labels] = -np.inf
        return scores

    def _in_parts(self, work: Callable[[slice], _Result], num_rows: int) -> list[_Result]:
        """Return the results of some work on parts of the rows, done by several threads."""
        parts = [
            slice(start, start + _ROWS_A_PART) for start in range(0, max(1, num_rows), _ROWS_A_PART)
        ]
        if len(parts) == 1 or self._num_threads == 1:
            return [work(part) for part in parts]
        with ThreadPoolExecutor(self._num_threads) as threads:
            return list(threads.map(work, parts))
