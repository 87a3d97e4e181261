"""Fitting tf-idf: vocabulary and document frequencies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import compress

import numpy as np
from jaxtyping import Bool, Float32
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer

from longtail.models.scorers.markup import without_markup
from longtail.models.scorers.tfidf import CHAR, WORD, TfidfModel, terms_of, weigh_counts
from longtail.models.scorers.word_forms import WordForms
from longtail.training.configuration.sections import SparseConfig
from longtail.training.sparse.fit import NoTokenError
from longtail.training.sparse.word_rule import ANY_WORD, WordRule


def fit_tfidf(
    texts: Iterable[str],
    config: SparseConfig,
    rule: WordRule = ANY_WORD,
    *,
    languages: Sequence[str] = (),
    removes_markup: bool = False,
) -> tuple[TfidfModel, Float32[csr_array, "document feature"]]:
    """Learn vocabulary and idf, and return them with the training documents' tf-idf rows.

    Texts are read once and not kept; memory is that of the count matrix and of all distinct words
    and phrases, rare ones too.

    Args:
        texts: Training documents.
        config: Document frequency bounds, analyzer (automatic: words), length of phrases.
        rule: Which words may become features besides.
        languages: Of the texts, whose words are compared by `WordForms` if one is not English.
        removes_markup: Whether texts are read without HTML.

    Raises:
        NoTokenError: No token is within the bounds.
    """
    analyzer = CHAR if config.analyzer == CHAR else WORD
    max_ngram = 1 if analyzer == CHAR else config.max_ngram
    counter = CountVectorizer(
        analyzer=partial(terms_of, max_ngram=max_ngram, analyzer=analyzer), dtype=np.float32
    )
    if removes_markup:
        texts = map(without_markup, texts)
    try:
        counts = csr_array(counter.fit_transform(texts))
    except ValueError as error:
        raise NoTokenError(_no_token(config, str(error))) from error
    tokens = [str(token) for token in counter.get_feature_names_out()]
    tokens, counts = _taken(tokens, counts, rule.allowed(tokens, counts))
    forms = WordForms(languages)
    if forms.has_stems and analyzer == WORD:
        tokens, counts = _merged(tokens, counts, forms)
    num_documents = counts.shape[0]
    frequency = np.bincount(counts.indices, minlength=len(tokens))
    most = config.max_document_share * num_documents
    is_within = (frequency >= config.min_document_count) & (frequency <= most)
    tokens, counts = _taken(tokens, counts, is_within)
    if not tokens:
        raise NoTokenError(_no_token(config, "all are rarer, more frequent or excluded"))
    idf = (np.log((1 + num_documents) / (1 + frequency[is_within])) + 1).astype(np.float32)
    model = TfidfModel(tokens, idf, languages, max_ngram, analyzer, removes_markup=removes_markup)
    return model, weigh_counts(counts, idf)


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
