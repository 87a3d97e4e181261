"""Fitting tf-idf: vocabulary, document frequencies and lemmas."""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float32
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer

from longtail.models.errors import ConfigError
from longtail.models.extras import require
from longtail.models.scorers.markup import without_markup
from longtail.models.scorers.tfidf import CHAR, WORD, TfidfModel, terms_of, weigh_counts
from longtail.training.configuration.sections import SparseConfig
from longtail.training.sparse.fit import NoTokenError
from longtail.training.sparse.word_rule import ANY_WORD, WordRule


def fit_tfidf(
    texts: Iterable[str],
    config: SparseConfig,
    rule: WordRule = ANY_WORD,
    *,
    removes_markup: bool = False,
) -> tuple[TfidfModel, Float32[csr_array, "document feature"]]:
    """Learn vocabulary and idf, and return them with the training documents' tf-idf rows.

    Texts are read once and not kept; memory is that of the count matrix and of all distinct words
    and phrases, rare ones too.

    Args:
        texts: Training documents.
        config: Document frequency bounds, analyzer (automatic: words), lemmas, length of phrases.
        rule: Which words may become features besides.
        removes_markup: Whether texts are read without HTML.

    Raises:
        NoTokenError: No token is within the bounds.
        ConfigError: The lemma table is missing.
    """
    analyzer = CHAR if config.analyzer == CHAR else WORD
    lemmas = {} if analyzer == CHAR else read_lemmas(config.lemma_language)
    lemmas = {form: lemma for form, lemma in lemmas.items() if not rule.excludes(form)}
    max_ngram = 1 if analyzer == CHAR else config.max_ngram
    counter = CountVectorizer(
        analyzer=partial(terms_of, lemmas=lemmas, max_ngram=max_ngram, analyzer=analyzer),
        min_df=config.min_document_count,
        max_df=config.max_document_share,
        dtype=np.float32,
    )
    if removes_markup:
        texts = map(without_markup, texts)
    try:
        counts = csr_array(counter.fit_transform(texts))
    except ValueError as error:
        raise NoTokenError(_no_token(config, str(error))) from error
    tokens = [str(token) for token in counter.get_feature_names_out()]
    is_allowed = rule.allowed(tokens, counts)
    if not is_allowed.all():
        tokens = [token for token, allowed in zip(tokens, is_allowed, strict=True) if allowed]
        counts = csr_array(counts[:, is_allowed])
    if not tokens:
        reason = "all others are excluded, or of too few different documents"
        raise NoTokenError(_no_token(config, reason))
    num_documents = counts.shape[0]
    frequency = np.bincount(counts.indices, minlength=len(tokens))
    idf = (np.log((1 + num_documents) / (1 + frequency)) + 1).astype(np.float32)
    kept = set(tokens)
    # A form that is itself a token must go on being read as its lemma, even one left out.
    used = {form: x for form, x in lemmas.items() if x in kept or form in kept}
    model = TfidfModel(tokens, idf, used, max_ngram, analyzer, removes_markup=removes_markup)
    return model, weigh_counts(counts, idf)


def _no_token(config: SparseConfig, reason: str) -> str:
    return (
        f"tf-idf: no token occurs in at least {config.min_document_count} and at most "
        f"{config.max_document_share:.0%} of the training documents ({reason}); give more "
        "documents, or change sparse.min_document_count or sparse.max_document_share"
    )


def read_lemmas(language: str) -> dict[str, str]:
    """Return spaCy's lookup lemmas of a language, by lower-case surface form; none for "".

    The tables are lists of forms and know no part of speech ("leaves" -> "leave").

    Raises:
        ConfigError: The package with the tables is missing, or has none for this language.
    """
    if not language:
        return {}
    require("lemmas", f"sparse.lemma_language {language!r}")
    spec = importlib.util.find_spec("spacy_lookups_data")
    assert spec is not None and spec.origin is not None
    path = Path(spec.origin).parent / "data" / f"{language}_lemma_lookup.json.gz"
    if not path.exists():
        raise ConfigError(
            f"sparse.lemma_language {language!r}: spacy-lookups-data has no such lemma table; "
            "leave it empty, or choose another language"
        )
    with gzip.open(path, "rt", encoding="utf-8") as file:
        table: dict[str, str | list[str]] = json.load(file)
    # Some languages list several lemmas of a form, the likeliest first.
    first = {form: x if isinstance(x, str) else x[0] for form, x in table.items() if x}
    lowered = {form.lower(): lemma.lower() for form, lemma in first.items()}
    return {form: lemma for form, lemma in lowered.items() if form != lemma}
