"""The vocabulary of a corpus; where the defaults leave no token, they are adapted and logged."""

from __future__ import annotations

import logging
import reprlib
from collections.abc import Iterator, Sequence

from jaxtyping import Float32
from scipy.sparse import csr_array

from longtail.models.scorers.character_terms import has_word, unspaced_share
from longtail.models.scorers.tfidf import CHAR, WORD, TfidfModel
from longtail.training.configuration.sections import SparseConfig
from longtail.training.data.splits import Split
from longtail.training.sparse.fit import NoTokenError
from longtail.training.sparse.tfidf import fit_tfidf
from longtail.training.sparse.word_rule import ANY_WORD, WordRule

logger = logging.getLogger(__name__)

_DEFAULTS = SparseConfig()
LEAST_SHARE = 0.5
"""Least share of letters in scripts without spaces for which "automatic" takes characters."""


def fit_tfidf_of(
    split: Split,
    config: SparseConfig,
    unspaced: float | None = None,
    rule: WordRule = ANY_WORD,
    *,
    languages: Sequence[str] = (),
    removes_markup: bool = False,
) -> tuple[TfidfModel, Float32[csr_array, "document feature"]]:
    """Learn vocabulary and idf (see `fit_tfidf`); defaults that leave no token give way.

    A bound at its default is dropped where no token is within it: first that of rare tokens, then
    that of frequent ones, then both. The analyzer "automatic" takes words, or characters where most
    letters are of scripts without spaces or no document has a word.

    Args:
        split: Training documents, which are read several times.
        config: As it was given; what is not at its default is kept.
        unspaced: Share of the letters in scripts without spaces; None: the texts are read for it.
        rule: Which words may become features besides; it never gives way.
        languages: The texts' languages.
        removes_markup: Whether texts are read without HTML.
    """
    share = unspaced_share(split.texts()) if unspaced is None else unspaced
    chosen = _with_analyzer(split, config, share)
    refusals: list[NoTokenError] = []
    for settings in _attempts(chosen, may_change=config.analyzer == "automatic"):
        try:
            found = fit_tfidf(
                split.texts(), settings, rule, languages=languages, removes_markup=removes_markup
            )
        except NoTokenError as error:
            refusals.append(error)
            continue
        _tell(split, chosen, settings)
        return found
    reason = _wordless(split) or _reason(chosen, share, refusals[0])
    raise NoTokenError(f"{split.path}: {reason}") from refusals[0]


def _with_analyzer(split: Split, config: SparseConfig, share: float) -> SparseConfig:
    """Return the settings with the analyzer that is tried first."""
    if config.analyzer != "automatic":
        return config
    if share <= LEAST_SHARE:
        return _changed(config, analyzer=WORD)
    logger.warning(
        "%s: %.0f%% of the letters are of scripts without spaces between words: character n-grams "
        "are the features of the sparse model (sparse.analyzer: char)%s",
        split.path, 100 * share, _ignored(config),
    )  # fmt: skip
    return _changed(config, analyzer=CHAR)


def _ignored(config: SparseConfig) -> str:
    is_given = config.max_ngram != _DEFAULTS.max_ngram
    return "; sparse.max_ngram decides nothing then" if is_given else ""


def _attempts(config: SparseConfig, *, may_change: bool) -> Iterator[SparseConfig]:
    """Give the settings to try, in order.

    Yields:
        Those given, then such as have fewer bounds, and all that again with characters.
    """
    analyzers = [config.analyzer]
    if may_change and config.analyzer == WORD:
        analyzers.append(CHAR)
    looser_count: dict[str, float] = {}
    looser_share: dict[str, float] = {}
    if _is_default(config, "min_document_count"):
        looser_count = {"min_document_count": 1}
    if _is_default(config, "max_document_share"):
        looser_share = {"max_document_share": 1.0}
    for analyzer in analyzers:
        tried: list[dict[str, float]] = []
        for changes in ({}, looser_count, looser_share, looser_count | looser_share):
            if changes not in tried:
                tried.append(changes)
                yield _changed(config, analyzer=analyzer, **changes)


def _is_default(config: SparseConfig, name: str) -> bool:
    return bool(getattr(config, name) == getattr(_DEFAULTS, name))


def _changed(config: SparseConfig, **changes: object) -> SparseConfig:
    return config.model_copy(update=changes)


def _tell(split: Split, given: SparseConfig, taken: SparseConfig) -> None:
    changes = [
        f"sparse.{name} {getattr(taken, name)} instead of {getattr(given, name)}"
        for name in ("analyzer", "min_document_count", "max_document_share")
        if getattr(taken, name) != getattr(given, name)
    ]
    if changes:
        logger.warning(
            "%s: no token is left with the default settings, so they are adapted: %s",
            split.path, ", ".join(changes),
        )  # fmt: skip


def _wordless(split: Split) -> str:
    """Return that no document has a word; empty where one has."""
    num_documents, first = 0, ""
    for text in split.texts():
        if has_word(text):
            return ""
        num_documents, first = num_documents + 1, first or text
    return (
        f"none of the {num_documents} training documents has a word or a number, only signs such "
        f"as {reprlib.repr(first)}; give texts in words: signs can be written as such (an emoji as "
        "its name)"
    )


def _reason(config: SparseConfig, share: float, refusal: NoTokenError) -> str:
    if config.analyzer == WORD and share > 0:
        return (
            f"{refusal}; {share:.0%} of the letters are of scripts without spaces between words: "
            "set sparse.analyzer to char, or leave it automatic"
        )
    return str(refusal)
