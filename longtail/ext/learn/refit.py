"""The parts of a model that need no encoder, fitted again on a corpus and feedback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array

from longtail.ext.learn.documents import ChangedDocuments
from longtail.ext.learn.remembered import differing_documents, known_documents
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.trained_on import TrainedOn
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.labels.text import pseudo_description, text_for_encoder
from longtail.models.names import DENSE_NEIGHBOURS, LINEAR
from longtail.models.parts.model_parts import ModelParts
from longtail.models.scorers.sparse import SparseModel
from longtail.training.configuration.sections import DescriptionConfig, SparseConfig
from longtail.training.fitting import TrainingDocuments
from longtail.training.memory.vectors import with_documents
from longtail.training.pipeline.fittings import fit_scorers
from longtail.training.runtime.run_log import stage_cost
from longtail.training.sparse.descriptions import keywords_of_labels
from longtail.training.sparse.fit import fit_label_columns, fit_on_threads
from longtail.training.sparse.svm import StartingRows

if TYPE_CHECKING:  # brings PyTorch, which a model without a dense half does not need
    from longtail.models.parts.dense_parts import DenseParts
    from longtail.models.scorers.linear import LinearScorer

_MOST_DIFFERING = 0.25
"""Share of a label's documents that differ, up to which its row is changed by them: the negatives
that matter are looked for by the row of before."""


def refit(
    before: ModelParts,
    catalogue: LabelCatalogue,
    changed: ChangedDocuments,
    manifest: Manifest,
    folder: Path,
    record: TrainedOn | None = None,
    *,
    has_few: bool = True,
) -> tuple[ModelParts, Int64[np.ndarray, refitted]]:
    """Return the model with all learned that needs no dev split, and the labels fitted again.

    With a record, what the model knows of documents is not fitted again: their tf-idf is that of
    its memory, names are counted in the documents that changed, and sparse classifiers are changed
    by them where they are few. The vocabulary, its idf, and what an encoder gives of the labels
    that there were stay.

    Args:
        before: The model.
        catalogue: Its labels, then the new ones.
        changed: The documents.
        manifest: The manifest of the model, with the settings of its training.
        folder: Folder of the run; what was fitted there is not fitted again.
        record: Of the documents of the model; None: all is fitted on all documents again.
        has_few: Whether few documents changed.
    """
    settings = manifest.training
    known, features, ids = known_documents(before, manifest, record, changed) or (
        None,
        before.sparse.tfidf.transform(changed.texts()),
        [document_id for document_id, _ in changed.documents()],
    )
    differing = None if known is None else differing_documents(changed, known)
    touched = changed.touched
    if differing is not None:
        touched = np.flatnonzero(np.diff(differing.indptr)).astype(np.int64)
    with stage_cost(folder, "sparse"):
        sparse = refit_sparse(
            before.sparse, features, changed.labels, touched, differing if has_few else None,
            settings, folder / "sparse",
        )  # fmt: skip
    counts = catalogue.training_counts  # those of labels out of use stay
    counts[changed.touched] = changed.counts[changed.touched]
    described = _labels_to_describe(catalogue, counts, len(before.catalogue))
    catalogue = _described(catalogue, described, sparse, counts, settings)
    on = TrainingDocuments(
        texts=changed.texts,
        ids=lambda: ids,
        features=features,
        truth=changed.labels,
        catalogue=catalogue,
        sparse=sparse,
        dev=lambda: None,
        seed=settings["seed"],
        known=known,
    )
    models = fit_scorers(
        before.models, on, settings.get("scorer_settings", {}), folder, before=before.models
    )
    models = {**before.models, **models}
    if DENSE_NEIGHBOURS in models:
        from longtail.training.neural.document_vectors import document_encoder  # brings PyTorch

        models[DENSE_NEIGHBOURS] = with_documents(
            models[DENSE_NEIGHBOURS], ids, changed.texts(), changed.labels,
            document_encoder(before, settings.get("precision", "auto")),
        )  # fmt: skip
    if (linear := models.get(LINEAR)) is not None and linear.correction == "prior":
        models[LINEAR] = _with_priors(linear, catalogue)
    if (dense := before.dense) is not None:
        assert manifest.encoder is not None  # else there would be no dense half
        prefix = manifest.encoder.label_prefix
        dense = _with_label_vectors(dense, catalogue, described, settings, prefix)
    parts = replace(before, catalogue=catalogue, sparse=sparse, models=models, dense=dense)
    return parts, touched


def refit_sparse(
    model: SparseModel,
    features: Float32[csr_array, "document feature"],
    truth: Float32[csr_array, "document label"],
    touched: Int64[np.ndarray, touched],
    differing: Float32[csr_array, "label document"] | None,
    settings: Mapping[str, Any],
    folder: Path,
) -> SparseModel:
    """Fit the rows of touched labels; the others stay the same to the bit.

    A row is changed by the documents that differ where they are few beside those of the label, else
    it is fitted on all documents.

    Args:
        model: The classifiers that there are.
        features: Tf-idf of all documents.
        truth: Their labels.
        touched: The labels to fit.
        differing: Of `differing_documents`; None: all rows are fitted on all documents.
        settings: Settings of the training of the model.
        folder: For the blocks of labels.

    Returns:
        The model; a touched label without documents has no row.
    """
    counts = np.bincount(truth.indices, minlength=truth.shape[1])
    fitted = touched[counts[touched] > 0]
    start = None
    if differing is not None:
        has_few = _MOST_DIFFERING * counts >= np.diff(differing.indptr)
        labels = fitted[has_few[fitted] & np.isin(fitted, model.labels)]
        at = np.searchsorted(model.labels, labels)
        start = StartingRows(
            labels, csr_array(model.weights[at]), model.bias[at], csr_array(differing[labels])
        )
    config = SparseConfig.model_validate(settings["sparse"])
    weights, bias = fit_label_columns(
        features, truth, fitted, config, seed=settings["seed"], folder=folder,
        engine=partial(fit_on_threads, start=start),
    )  # fmt: skip
    return model.with_columns(fitted, weights, bias, dropped=touched)


def _labels_to_describe(
    catalogue: LabelCatalogue, counts: Int64[np.ndarray, label], num_before: int
) -> Int64[np.ndarray, described]:
    """Return new labels and labels that had no documents: all others keep texts and vectors."""
    is_new = np.arange(len(catalogue)) >= num_before
    had_none = catalogue.training_counts == 0
    return np.flatnonzero(is_new | (had_none & (counts > 0))).astype(np.int64)


def _described(
    catalogue: LabelCatalogue,
    described: Int64[np.ndarray, described],
    sparse: SparseModel,
    counts: Int64[np.ndarray, label],
    settings: Mapping[str, Any],
) -> LabelCatalogue:
    """Return the labels with their numbers of documents, and some described by their keywords."""
    rows = np.flatnonzero(np.isin(sparse.labels, described))
    own = SparseModel.of_rows(
        sparse.tfidf, csr_array(sparse.weights[rows]), sparse.bias[rows], sparse.labels[rows]
    )
    config = DescriptionConfig.model_validate(settings.get("descriptions", {}))
    keywords = keywords_of_labels(own, catalogue, config)
    texts = [label.pseudo_description for label in catalogue]
    for label in described.tolist():
        texts[label] = pseudo_description(catalogue[label], keywords[label])
    return catalogue.replaced(training_count=counts.tolist(), pseudo_description=texts)


def _with_label_vectors(
    dense: DenseParts,
    catalogue: LabelCatalogue,
    described: Int64[np.ndarray, described],
    settings: Mapping[str, Any],
    label_prefix: str,
) -> DenseParts:
    """Encode the labels that were described; nothing is trained."""
    from longtail.models.encoders.dual_encoder import encode_all
    from longtail.models.encoders.tokens import tokenize_texts

    if len(described):
        texts = [
            text_for_encoder(catalogue[label], is_tuned=dense.is_tuned)
            for label in described.tolist()
        ]
        max_tokens = settings["descriptions"]["max_tokens"]
        tokens = tokenize_texts(dense.tokenizer, texts, max_tokens, label_prefix)
        pad_id = int(dense.tokenizer.pad_token_id or 0)
        num_more = len(catalogue) - len(dense.label_vectors)
        vectors = np.pad(dense.label_vectors, ((0, num_more), (0, 0)))
        vectors[described] = encode_all(dense.encoder, tokens, "label", pad_id=pad_id)
        dense = replace(dense, label_vectors=vectors)
    return dense


def _with_priors(linear: LinearScorer, catalogue: LabelCatalogue) -> LinearScorer:
    """Leave out rows of labels without documents, which have no share to correct by."""
    rows, kept = linear.model, catalogue.training_counts[linear.model.labels] > 0
    model = replace(rows, weight=rows.weight[kept], bias=rows.bias[kept], labels=rows.labels[kept])
    return replace(linear, model=model)
