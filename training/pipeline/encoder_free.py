"""All that a run fits without an encoder, on the training documents of one corpus or view of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxtyping import Float32
from scipy.sparse import csr_array

from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.scorers.sparse import SparseModel
from longtail.models.scorers.tfidf import TfidfModel
from longtail.models.scorers.word_forms import WordForms
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.documents import TrainingDocuments
from longtail.training.data.languages import LanguageCount
from longtail.training.fitting import DevDocuments, FittedOn
from longtail.training.pipeline.fittings import fit_scorers
from longtail.training.runtime.run_log import stage_cost
from longtail.training.sparse.analyzer import with_analyzer_chosen
from longtail.training.sparse.cost import with_cost_chosen
from longtail.training.sparse.descriptions import keywords_of_labels, pseudo_descriptions, related
from longtail.training.sparse.fit import LabelEngine, fit_on_threads, fit_sparse_model
from longtail.training.sparse.vocabulary import fit_tfidf_of
from longtail.training.sparse.word_rule import word_rule_of

logger = logging.getLogger(__name__)

_LEAST_MARKUP = 0.01
"""Share of the training documents that have HTML, from which on it is left out."""
_with_markup = set[Path]()
"""Corpora of this process that have HTML: the first one warns, as folds have it, too."""


@dataclass(frozen=True, slots=True)
class EncoderFree:
    """What needs no encoder, and what it was fitted on.

    Attributes:
        catalogue: The labels, with their numbers of training documents and pseudo descriptions.
        sparse: The sparse model.
        models: Those of the other scorers, by name; without those of which nothing was learned.
        features: What it reads of the training documents.
        truth: Their labels.
        config: The run's configuration, with the cost of the sparse model that was chosen.
    """

    catalogue: LabelCatalogue
    sparse: SparseModel
    models: dict[str, Any]
    features: Float32[csr_array, "document feature"]
    truth: Float32[csr_array, "document label"]
    config: TrainingConfig


def with_texts_decided(config: TrainingConfig, documents: TrainingDocuments) -> TrainingConfig:
    """Return a configuration that decides what it leaves to the texts: markup and languages."""
    decided: dict[str, Any] = {}
    folder, found = documents.corpus.folder, documents.languages
    if config.remove_markup is None:
        decided["remove_markup"] = documents.markup_share >= _LEAST_MARKUP
    if decided.get("remove_markup"):
        logger.log(
            logging.INFO if _with_markup else logging.WARNING,
            "%s: %.0f%% of the training documents have HTML (tags, or references such as &amp;), "
            "which is left out of all texts (remove_markup: true)",
            folder, 100 * documents.markup_share,
        )  # fmt: skip
        _with_markup.add(folder)
    if config.languages is None:
        decided["languages"] = found.languages
        of_names = LanguageCount.of(label.name for label in documents.catalogue)
        logger.log(
            logging.WARNING if WordForms(found.languages).has_stems else logging.INFO,
            "%s: languages of the training documents: %s; of the labels' names: %s; words are "
            "compared without inflection as in languages: [%s]",
            folder, found, of_names, ", ".join(found.languages),
        )  # fmt: skip
    return config.model_copy(update=decided)


def fit_encoder_free(
    documents: TrainingDocuments,
    config: TrainingConfig,
    folder: Path,
    *,
    engine: LabelEngine = fit_on_threads,
    suffix: str = "",
    before: Mapping[str, Any] | None = None,
    vocabulary: TfidfModel | None = None,
) -> EncoderFree:
    """Fit all that needs no encoder, and describe the labels by the sparse model's keywords.

    Args:
        documents: The documents to fit on, and to choose by.
        config: The run's configuration.
        folder: The run's folder; a fit that was killed resumes there.
        engine: What fits the sparse model.
        suffix: Tells this fit from another one of the same run.
        before: Models of the scorers that there are to be, fitted on a part of the documents; None:
            those of the configuration are fitted for the first time.
        vocabulary: What the sparse model reads; None: it is learned from the documents.
    """
    training = documents.train
    truth = training.scan().labels
    with stage_cost(folder, f"features{suffix}"):
        if vocabulary is not None:  # with the analyzer of the version before
            tfidf, features = vocabulary, vocabulary.transform(training.texts())
        else:
            rule = word_rule_of(training, config)
            chosen = with_analyzer_chosen(documents, config, rule, folder, engine)
            config = config.model_copy(update={"sparse": chosen})
            tfidf, features = fit_tfidf_of(
                training,
                config.sparse,
                documents.unspaced_share,
                rule,
                languages=config.languages or (),
                removes_markup=bool(config.remove_markup),
            )
        chosen_on = None
        if (dev := documents.dev) is not None:
            chosen_on = DevDocuments(tfidf.transform(dev.texts()), dev.scan().labels)
    with stage_cost(folder, f"sparse{suffix}"):
        sparse = fit_sparse_model(
            tfidf, features, truth, config.sparse,
            seed=config.seed, folder=folder / f"sparse{suffix}", engine=engine,
        )  # fmt: skip
        sparse, settings = with_cost_chosen(
            sparse, features, truth, chosen_on, config.sparse,
            seed=config.seed, folder=folder / "sparse-cost", engine=engine,
        )  # fmt: skip
        config = config.model_copy(update={"sparse": settings})
        catalogue = related(documents.catalogue, config.descriptions)
        keywords = keywords_of_labels(sparse, catalogue, config.descriptions)
    texts = pseudo_descriptions(catalogue, keywords)
    on = FittedOn(
        texts=training.texts,
        ids=lambda: [document.id for document in training],
        features=features,
        truth=truth,
        catalogue=documents.catalogue,
        sparse=sparse,
        dev=chosen_on,
        seed=config.seed,
    )
    models = fit_scorers(
        config.scorers if before is None else before, on, config.scorer_settings, folder,
        suffix=suffix, before=before or {},
    )  # fmt: skip
    catalogue = catalogue.replaced(pseudo_description=texts)
    return EncoderFree(catalogue, sparse, models, features, truth, config)
