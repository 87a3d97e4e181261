"""What the sparse model reads of a split: tf-idf of its texts, or the features that it has."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32
from scipy.sparse import csr_array

from models.errors import DataError
from models.names import FEATURES, TEXT, Input
from models.scorers.tfidf import TfidfModel, unit_rows
from training.configuration.sections import SparseConfig
from training.data.dataset import Dataset
from training.sparse.vocabulary import fit_tfidf_of

_DOCUMENTS: dict[Input, str] = {TEXT: "texts", FEATURES: "features"}


def training_features(
    dataset: Dataset, config: SparseConfig
) -> tuple[TfidfModel, Float32[csr_array, "document feature"]]:
    """Return the features of the training documents, and what tells those of others.

    Features that the corpus has are scaled to length one and otherwise left as they are: their
    `TfidfModel` names them, and weighs each with 1.

    Args:
        dataset: The corpus.
        config: How texts become features.

    Raises:
        DataError: No token is within the bounds of the configuration.
        ConfigError: The lemma table is missing.
    """
    split = dataset.split("train")
    if dataset.input == FEATURES:
        names = dataset.feature_names
        tfidf = TfidfModel(names, np.ones(len(names), dtype=np.float32))
        return tfidf, unit_rows(split.features())
    return fit_tfidf_of(split, config)


def split_features(
    tfidf: TfidfModel, model_input: Input, dataset: Dataset, split_name: str
) -> Float32[csr_array, "document feature"]:
    """Return the features of a split as a trained model reads them.

    Args:
        tfidf: Of the model.
        model_input: What the model reads.
        dataset: The corpus.
        split_name: One of its splits.

    Raises:
        DataError: The corpus has texts where the model reads features, or the other way round, or
            its features are not the model's; or the split is missing or has broken lines.
    """
    check_documents(dataset, model_input, tfidf.tokens)
    split = dataset.split(split_name)
    return (
        unit_rows(split.features()) if model_input == FEATURES else tfidf.transform(split.texts())
    )


def check_documents(dataset: Dataset, model_input: Input, feature_names: tuple[str, ...]) -> None:
    """Refuse a corpus whose documents a trained model can't read.

    Args:
        dataset: The corpus.
        model_input: What the model reads.
        feature_names: Names of its features, in column order; of one that reads texts, any.

    Raises:
        DataError: The corpus has texts where the model reads features, or the other way round, or
            its features are not the model's.
    """
    if dataset.input != model_input:
        raise DataError(
            f"{dataset.folder}: holds {_DOCUMENTS[dataset.input]}, but the model reads "
            f"{_DOCUMENTS[model_input]}; evaluate on data of the form that it was trained on"
        )
    if model_input == FEATURES and dataset.feature_names != feature_names:
        raise DataError(
            f"{dataset.folder}: its {len(dataset.feature_names)} features are not the model's "
            f"{len(feature_names)}; give a corpus with the same features in the same order"
        )
