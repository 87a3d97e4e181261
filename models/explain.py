"""Why a text got a label: keywords, labels like it, and what the text's tokens add to its score.

A cosine of two labels depends on no other label, to the bit. The contributions of a text's tokens,
with the rest and the bias, add up to the score.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int32, Int64
from scipy.sparse import csr_array

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.native.library import RowsLike
from longtail.models.parts.model_parts import ModelParts
from longtail.models.ranking.top_k import (
    MAX_PRODUCTS,
    NO_LABEL,
    Ranking,
    nothing,
    products_with_rows,
    row_parts,
    top_of_candidates,
    top_of_scores,
)
from longtail.models.results import Keyword, NearLabel, Span, TokenContribution, TokenExplanation
from longtail.models.scorers.character_terms import placed_terms
from longtail.models.scorers.markup import placed_without_markup
from longtail.models.scorers.sparse import SparseModel, sum_up
from longtail.models.scorers.tfidf import CHAR, TOKEN_PATTERN, TfidfModel, title_end


@runtime_checkable  # the test run checks annotations by isinstance
class LabelNeighbours(Protocol):
    """Finds the labels that are most like others."""

    def nearest_to(self, labels: Int64[np.ndarray, label], k: int) -> Ranking:
        """Return the k labels of largest cosine with each of these, itself left out.

        Labels out of use are left out, too. Ties: the smaller label index first. A row has
        `NO_LABEL` where there are fewer.
        """
        ...


class VectorNeighbours:
    """By a vector for every label."""

    def __init__(
        self, vectors: Float32[np.ndarray, "label dim"], in_use: Bool[np.ndarray, label]
    ) -> None:
        self._vectors = np.ascontiguousarray(vectors)
        self._in_use = in_use

    @cached_property
    def _norms(self) -> Float32[np.ndarray, label]:
        return _lengths(self._vectors)

    def nearest_to(self, labels: Int64[np.ndarray, label], k: int) -> Ranking:
        """Return the nearest labels (see `LabelNeighbours`)."""
        parts = row_parts(len(labels), len(self._vectors), MAX_PRODUCTS)
        return _joined([self._nearest(labels[part], k) for part in parts], len(labels), k)

    def _nearest(self, labels: Int64[np.ndarray, part], k: int) -> list[Ranking]:
        """Let float32 products propose, whose rounding depends on the batch, and score again."""
        queries, norms = self._vectors[labels], self._norms[labels]
        cosines = queries @ self._vectors.T / (norms[:, None] * self._norms)
        cosines[np.arange(len(labels)), labels] = -np.inf
        cosines[:, ~self._in_use] = -np.inf
        k_found = min(k, len(self._vectors))
        least = np.partition(cosines, -k_found, axis=1)[:, -k_found]
        slack = np.float32(4 * (self._vectors.shape[1] + 8) * 2.0**-24)
        best = []
        for row, label in enumerate(labels):
            near = np.flatnonzero(cosines[row] >= least[row] - slack)[None]
            exact = products_with_rows(queries[row : row + 1], self._vectors, near)
            exact = exact / (norms[row] * self._norms[near])
            exact[(near == label) | ~self._in_use[near]] = -np.inf
            best.append(top_of_candidates(near, exact, k))
        return best


class WeightNeighbours:
    """By the weights of the sparse model; labels without any have no neighbours."""

    def __init__(self, model: SparseModel, in_use: Bool[np.ndarray, label]) -> None:
        self._model = model
        self._in_use = in_use

    def nearest_to(self, labels: Int64[np.ndarray, label], k: int) -> Ranking:
        """Return the nearest labels that share any weight (see `LabelNeighbours`)."""
        best, covered = nothing(len(labels), k), self._model.labels
        places = np.flatnonzero(np.isin(labels, covered))
        rows = np.searchsorted(covered, labels[places])
        queries = self._model.rows(rows)
        for number, place in enumerate(places.tolist()):
            found = self._nearest(queries[[number]], int(rows[number]), k)
            best.labels[place], best.scores[place] = found.labels[0], found.scores[0]
        return best

    def _nearest(self, query: Float32[csr_array, "1 feature"], row: int, k: int) -> Ranking:
        covered, norms = self._model.labels, self._model.norms
        products = np.zeros((1, len(covered)), dtype=np.float32)
        sum_up(query, self._model.native_weights, np.zeros(1, dtype=np.int64), products)
        shares = products[0] != 0
        cosines = np.full((1, len(self._in_use)), -np.inf, dtype=np.float32)
        cosines[0, covered[shares]] = products[0, shares] / (norms[row] * norms[shares])
        cosines[0, covered[row]] = -np.inf
        cosines[0, ~self._in_use] = -np.inf
        return top_of_scores(cosines, k)


def _lengths(vectors: Float32[np.ndarray, "label dim"]) -> Float32[np.ndarray, label]:
    """Return the lengths of vectors; 1 for a vector of zeros, whose cosines are then 0."""
    norms: Float32[np.ndarray, label] = np.linalg.norm(vectors, axis=1)
    return np.where(norms > 0, norms, np.float32(1))


def _joined(parts: list[list[Ranking]], num_rows: int, k: int) -> Ranking:
    best = nothing(num_rows, k)
    for row, ranking in enumerate(of_row for part in parts for of_row in part):
        best.labels[row], best.scores[row] = ranking.labels[0], ranking.scores[0]
    return best


NUM_KEYWORDS = 10
NUM_NEAREST = 5
_MAX_KEPT = 4096
"""Labels whose neighbours are remembered."""


@dataclass(frozen=True, slots=True)
class LabelDetails:
    """All that is known of a label.

    Attributes:
        index: Its row in the catalogue.
        label: What the catalogue says.
        keywords: What the sparse model knows it by, the largest weight first.
        nearest: Labels that are like it, the nearest first.
        scorers: Those that can give it a score.
    """

    index: int
    label: Label
    keywords: tuple[Keyword, ...]
    nearest: tuple[NearLabel, ...]
    scorers: tuple[str, ...]


class LabelFacts:
    """What is known of labels, whatever the text."""

    def __init__(self, parts: ModelParts) -> None:
        self.catalogue: LabelCatalogue = parts.catalogue
        self._sparse = parts.sparse
        self._is_confidential = parts.is_confidential
        self._neighbours: LabelNeighbours = (
            WeightNeighbours(parts.sparse, parts.catalogue.in_use)
            if parts.dense is None
            else VectorNeighbours(parts.dense.label_vectors, parts.catalogue.in_use)
        )
        self._kept: dict[int, tuple[NearLabel, ...]] = {}

    def keywords(self, labels: Sequence[int]) -> list[tuple[Keyword, ...]]:
        """Return the tokens of largest positive weight; ties in the order of the vocabulary.

        Only tokens with a letter: the number of a document is no keyword. None of a confidential
        model: a word of one person may be the one that tells a rare label.
        """
        if self._is_confidential:
            return [()] * len(labels)
        rows = [row_of(self._sparse, label) for label in labels]
        known = [row for row in rows if row is not None]
        weights = self._sparse.rows(np.array(known, dtype=np.int64))
        found = iter([self._keywords(*entries_of(weights, row)) for row in range(len(known))])
        return [() if row is None else next(found) for row in rows]

    def _keywords(
        self,
        columns: Int32[np.ndarray, entry] | Int64[np.ndarray, entry],
        weights: Float32[np.ndarray, entry],
    ) -> tuple[Keyword, ...]:
        order = np.lexsort((columns, -weights))
        tokens = self._sparse.tfidf.tokens
        keywords = (
            Keyword(tokens[columns[i]], float(weights[i]))
            for i in order
            if weights[i] > 0 and any(map(str.isalpha, tokens[columns[i]]))
        )
        return tuple(islice(keywords, NUM_KEYWORDS))

    def nearest(self, labels: Sequence[int]) -> list[tuple[NearLabel, ...]]:
        """Return the nearest labels of each of these, the nearest first; they are remembered."""
        kept = self._kept  # never made smaller: another thread may read it
        unknown = [label for label in dict.fromkeys(labels) if label not in kept]
        if len(kept) + len(unknown) > _MAX_KEPT:
            kept = self._kept = {}
            unknown = list(dict.fromkeys(labels))
        if unknown:
            kept.update(zip(unknown, self._nearest(unknown), strict=True))
        return [kept[label] for label in labels]

    def _nearest(self, labels: Sequence[int]) -> list[tuple[NearLabel, ...]]:
        found = self._neighbours.nearest_to(np.array(labels, dtype=np.int64), NUM_NEAREST)
        return [
            tuple(
                NearLabel(self.catalogue[index].id, self.catalogue[index].name, cosine)
                for index, cosine in zip(near.tolist(), cosines.tolist(), strict=True)
                if index != NO_LABEL
            )
            for near, cosines in zip(found.labels, found.scores, strict=True)
        ]


def row_of(model: SparseModel, label: int) -> int | None:
    """Return the row of a label in the sparse model; None where it has none."""
    row = int(np.searchsorted(model.labels, label))
    return row if row < len(model.labels) and model.labels[row] == label else None


def entries_of(
    matrix: RowsLike, row: int
) -> tuple[Int32[np.ndarray, entry] | Int64[np.ndarray, entry], Float32[np.ndarray, entry]]:
    """Return the columns and values of a row's entries."""
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    return matrix.indices[part], matrix.data[part]


def spans_of(text: str, tfidf: TfidfModel, requested: Container[str]) -> dict[str, list[Span]]:
    """Return where some tokens are in a text, its HTML included, in rising order.

    Args:
        text: Any.
        tfidf: Whose words and phrases the tokens are, and whose words of titles.
        requested: The tokens; those that the text does not have are not in the answer.
    """
    if tfidf.removes_markup:
        cleaned, starts, stops = placed_without_markup(text)
        return {
            token: [(int(starts[start]), int(stops[end - 1])) for start, end in each]
            for token, each in _spans_of(cleaned, tfidf, requested).items()
        }
    return _spans_of(text, tfidf, requested)


def _spans_of(text: str, tfidf: TfidfModel, requested: Container[str]) -> dict[str, list[Span]]:
    lowered = text.lower()
    placed = placed_terms(lowered) if tfidf.analyzer == CHAR else _placed_words(lowered, tfidf)
    spans: dict[str, list[Span]] = {}
    end_of_title = title_end(lowered)
    for term, start, stop in placed:
        in_title = tfidf.title_token_of(term) if stop <= end_of_title else None
        for token in (tfidf.token_of(term), in_title):
            if token is not None and token in requested:
                spans.setdefault(token, []).append((start, stop))
    if len(lowered) == len(text):
        return spans
    positions = _positions(text)
    return {
        token: [(int(positions[start]), int(positions[end - 1]) + 1) for start, end in each]
        for token, each in spans.items()
    }


def _placed_words(lowered: str, tfidf: TfidfModel) -> Iterator[tuple[str, int, int]]:
    """Give the words and phrases of a lower-case text.

    Yields:
        Token, first character, and the one behind the last.
    """
    found = list(TOKEN_PATTERN.finditer(lowered))
    words = [tfidf.form_of(match.group()) for match in found]
    for length in range(1, tfidf.max_ngram + 1):
        for first in range(len(words) - length + 1):
            start, stop = found[first].start(), found[first + length - 1].end()
            yield " ".join(words[first : first + length]), start, stop


def _positions(text: str) -> Int64[np.ndarray, lowered]:
    """Return of each character of the lower-case text the place of the one that it comes from."""
    lengths = [len(character.lower()) for character in text]
    return np.repeat(np.arange(len(text), dtype=np.int64), lengths)


NUM_TOKENS_FOR = 10
"""Tokens that speak for a label, at most."""
NUM_TOKENS_AGAINST = 5
"""Tokens that speak against it, at most."""
MAX_SPANS = 50
"""Occurrences of one token that are given."""

Entries: TypeAlias = tuple[
    Int32[np.ndarray, "entry"] | Int64[np.ndarray, "entry"], Float32[np.ndarray, "entry"]
]
"""Columns and values of a sparse row."""


def token_contributions(
    model: SparseModel, text: str, features: Entries, labels: Sequence[int]
) -> dict[int, TokenExplanation]:
    """Return what the tokens of a text say about each label that the sparse model knows."""
    rows = {label: row for label in labels if (row := row_of(model, label)) is not None}
    of_text = model.weights_by_feature[features[0]]
    added = {label: _contributions(of_text, features, row) for label, row in rows.items()}
    biases = {label: float(model.bias[row]) for label, row in rows.items()}
    return explained_tokens(model.tfidf, text, added, biases)


def explained_tokens(
    tfidf: TfidfModel,
    text: str,
    added: Mapping[int, tuple[Int64[np.ndarray, entry], Float64[np.ndarray, entry]]],
    biases: Mapping[int, float],
) -> dict[int, TokenExplanation]:
    """Return the tokens that count most for the score of each label, and where the text has them.

    Args:
        tfidf: The features.
        text: The text.
        added: By label, columns of features, and what each of them adds to the score.
        biases: By label, what is added for every text.
    """
    telling = {label: _most_telling(*each) for label, each in added.items()}
    named = {tfidf.tokens[column] for each in telling.values() for column, _ in each}
    spans = spans_of(text, tfidf, named) if named else {}
    return {
        label: TokenExplanation(
            tokens=tuple(
                TokenContribution(token, value, tuple(spans[token][:MAX_SPANS]))
                for token, value in ((tfidf.tokens[column], value) for column, value in best)
            ),
            rest=float(added[label][1].sum()) - sum(x for _, x in best),
            bias=biases[label],
        )
        for label, best in telling.items()
    }


def _contributions(
    weights: Float32[csr_array, "entry covered"], features: Entries, row: int
) -> tuple[Int64[np.ndarray, shared], Float64[np.ndarray, shared]]:
    """Return the features that a text and a label share, and tf-idf times weight of each.

    Args:
        weights: Weights of all labels, for each feature of the text.
        features: The text's features.
        row: The label's row in `weights`.
    """
    columns, values = features
    at = np.flatnonzero(weights.indices == row)
    ours = np.searchsorted(weights.indptr, at, side="right") - 1
    products = values[ours].astype(np.float64) * weights.data[at].astype(np.float64)
    return columns[ours].astype(np.int64), products


def _most_telling(
    columns: Int64[np.ndarray, shared], values: Float64[np.ndarray, shared]
) -> list[tuple[int, float]]:
    """Return the features that count most, for and against, the largest value first."""
    order = np.lexsort((columns, -values))
    in_order = [(int(columns[i]), float(values[i])) for i in order]
    speaking_for = [each for each in in_order if each[1] > 0][:NUM_TOKENS_FOR]
    against = [each for each in in_order if each[1] < 0][-NUM_TOKENS_AGAINST:]
    return speaking_for + against
