"""Words or character n-grams, chosen on dev for a script other than Latin of an unknown language.

In such a language articles and prepositions may be written at the word, so that words repeat less.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np

from longtail.models.scorers.tfidf import CHAR, WORD
from longtail.training.configuration.run import TrainingConfig
from longtail.training.configuration.sections import AUTO, DEFAULT_COST, SparseConfig
from longtail.training.data.documents import TrainingDocuments
from longtail.training.fitting import DevDocuments
from longtail.training.sparse.cost import gain_on_dev
from longtail.training.sparse.fit import LabelEngine, NoTokenError, fit_sparse_model
from longtail.training.sparse.vocabulary import LEAST_SHARE, fit_tfidf_of
from longtail.training.sparse.word_rule import WordRule

logger = logging.getLogger(__name__)

_NUM_SAMPLED = 1000


def with_analyzer_chosen(
    documents: TrainingDocuments,
    config: TrainingConfig,
    rule: WordRule,
    folder: Path,
    engine: LabelEngine,
) -> SparseConfig:
    """Return the settings with character n-grams if they rank dev better by nDCG@5, beyond chance.

    Args:
        documents: The documents of the run; nothing is tried without dev.
        config: Its `languages` are empty where the language is unknown.
        rule: Which words may become features.
        folder: Keeps the models that are tried.
        engine: Trains them.
    """
    given, training, dev = config.sparse, documents.train, documents.dev
    is_open = given.analyzer == "automatic" and not config.languages
    is_open &= documents.unspaced_share <= LEAST_SHARE  # else characters are taken anyway
    if dev is None or not is_open or not _is_of_other_script(training.texts()):
        return given
    truth = training.scan().labels
    cost = DEFAULT_COST if given.cost == AUTO else given.cost
    tried = []
    for analyzer in (WORD, CHAR):
        settings = given.model_copy(update={"analyzer": analyzer, "cost": cost})
        removes_markup = bool(config.remove_markup)
        try:
            tfidf, features = fit_tfidf_of(
                training, settings, documents.unspaced_share, rule, removes_markup=removes_markup
            )
        except NoTokenError:
            return given
        model = fit_sparse_model(
            tfidf, features, truth, settings,
            seed=config.seed, folder=folder / f"analyzer-{analyzer}", engine=engine,
        )  # fmt: skip
        tried.append((model, DevDocuments(tfidf.transform(dev.texts()), dev.scan().labels)))
    is_better, gain = gain_on_dev(*tried)
    logger.info(
        "sparse: the language is unknown; with character n-grams instead of words, %s%s",
        gain, ": taken (sparse.analyzer: char)" if is_better else "",
    )  # fmt: skip
    return given.model_copy(update={"analyzer": CHAR}) if is_better else given


def _is_of_other_script(texts: Iterable[str]) -> bool:
    """Return whether most letters of the first texts are of a script other than Latin."""
    signs = "".join(islice(texts, _NUM_SAMPLED))
    letters = np.array([sign > "\u024f" for sign in signs if sign.isalpha()])
    return bool(letters.size) and bool(letters.mean() > 0.5)
