"""Fitting tf-idf: vocabulary and document frequencies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import compress

import numpy as np
from jaxtyping import Bool, Float32
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer

from longtail.models.matrices import csr_of
from longtail.models.scorers.markup import without_markup
from longtail.models.scorers.tfidf import (
    CHAR,
    TITLE,
    WORD,
    TfidfModel,
    terms_of,
    title_end,
    tokenize,
    weigh_counts,
    with_titles,
)
from longtail.models.scorers.word_forms import AS_WRITTEN, WordForms
from longtail.training.configuration.sections import SparseConfig
from longtail.training.sparse.fit import NoTokenError
from longtail.training.sparse.word_rule import ANY_WORD, WordRule

_LEAST_TITLED = 0.5
"""Share of the training documents that have a title, from which on its words are features."""


def fit_tfidf(
    texts: Iterable[str],
    config: SparseConfig,
    rule: WordRule = ANY_WORD,
    *,
    languages: Sequence[str] = (),
    removes_markup: bool = False,
) -> tuple[TfidfModel, Float32[csr_array, "document feature"]]:
    """Learn vocabulary and idf, and return them with the training documents' tf-idf rows.

    Texts are read once, and their titles alone are kept; memory is that of these, of the count
    matrix and of all distinct words and phrases, rare ones too.

    Args:
        texts: Training documents.
        config: Document frequency bounds, analyzer (automatic: words), length of phrases.
        rule: Which words may become features besides.
        languages: Languages of the texts, whose words are compared by `WordForms` if one is not
            English.
        removes_markup: Whether texts are read without HTML.
    """
    analyzer = CHAR if config.analyzer == CHAR else WORD
    max_ngram = 1 if analyzer == CHAR else config.max_ngram
    forms = WordForms(languages) if analyzer == WORD else AS_WRITTEN
    if removes_markup:
        texts = map(without_markup, texts)
    titles: list[str] = []
    if config.title_weight and analyzer == WORD:
        texts = _noting_titles(texts, titles)
    terms = partial(terms_of, max_ngram=max_ngram, analyzer=analyzer)
    tokens, counts, idf = _vocabulary(texts, terms, config, rule, forms)
    rows, of_titles, title_weight = weigh_counts(counts, idf), None, None
    if sum(map(bool, titles)) >= max(1, _LEAST_TITLED * len(titles)):
        with suppress(NoTokenError):
            of_titles = _vocabulary(titles, tokenize, config, rule, forms)
    if of_titles is not None:
        words, counts, title_idf = of_titles
        title_weight, titled = config.title_weight, weigh_counts(counts, title_idf)
        titled.indices += np.int32(len(tokens))
        both = with_titles(rows, titled, title_weight)
        shape = (rows.shape[0], len(tokens) + len(words))
        rows = csr_of(both.data, both.indices, both.indptr, shape)
        tokens += [TITLE + word for word in words]
        idf = np.concatenate([idf, title_idf])
    model = TfidfModel(
        tokens, idf, languages, max_ngram, analyzer,
        removes_markup=removes_markup, title_weight=title_weight,
    )  # fmt: skip
    return model, rows


def _noting_titles(texts: Iterable[str], titles: list[str]) -> Iterator[str]:
    """Yield texts, and append the title of each, empty where it has none."""
    for text in texts:
        titles.append(text[: title_end(text)])
        yield text


def _vocabulary(
    texts: Iterable[str],
    terms: Callable[[str], list[str]],
    config: SparseConfig,
    rule: WordRule,
    forms: WordForms,
) -> tuple[list[str], csr_array, Float32[np.ndarray, token]]:
    """Return the tokens within the bounds, how often each text has them, and their idf."""
    counter = CountVectorizer(analyzer=terms, dtype=np.float32)
    try:
        counts = csr_array(counter.fit_transform(texts))
    except ValueError as error:
        raise NoTokenError(_no_token(config, str(error))) from error
    tokens = [str(token) for token in counter.get_feature_names_out()]
    tokens, counts = _taken(tokens, counts, rule.allowed(tokens, counts))
    if forms.has_stems:
        tokens, counts = _merged(tokens, counts, forms)
    num_documents = counts.shape[0]
    frequency = np.bincount(counts.indices, minlength=len(tokens))
    most = config.max_document_share * num_documents
    is_within = (frequency >= config.min_document_count) & (frequency <= most)
    tokens, counts = _taken(tokens, counts, is_within)
    if not tokens:
        raise NoTokenError(_no_token(config, "all are rarer, more frequent or excluded"))
    idf = (np.log((1 + num_documents) / (1 + frequency[is_within])) + 1).astype(np.float32)
    return tokens, counts, idf


def _taken(
    tokens: list[str], counts: csr_array, is_taken: Bool[np.ndarray, token]
) -> tuple[list[str], csr_array]:
    """Return some tokens, and their columns."""
    if is_taken.all():
        return tokens, counts
    return list(compress(tokens, is_taken)), csr_array(counts[:, is_taken])


def _merged(tokens: list[str], counts: csr_array, forms: WordForms) -> tuple[list[str], csr_array]:
    """Return one token for all those of one form, their shortest, in the order of the alphabet."""
    shortest: dict[str, str] = {}
    keys = [forms.of_all(token) for token in tokens]
    for token, key in sorted(zip(tokens, keys, strict=True), key=lambda x: (len(x[0]), x[0])):
        shortest.setdefault(key, token)
    kept = sorted(shortest.values())
    columns = {token: column for column, token in enumerate(kept)}
    into = np.array([columns[shortest[key]] for key in keys], dtype=np.int64)
    ones = np.ones(len(tokens), dtype=np.float32)
    shape = (len(tokens), len(kept))
    merged = csr_array(counts @ csr_array((ones, (np.arange(len(tokens)), into)), shape=shape))
    merged.sort_indices()
    return kept, merged


def _no_token(config: SparseConfig, reason: str) -> str:
    return (
        f"tf-idf: no token occurs in at least {config.min_document_count} and at most "
        f"{config.max_document_share:.0%} of the training documents ({reason}); give more "
        "documents, or change sparse.min_document_count or sparse.max_document_share"
    )
