"""The dense half of a run: the classifier, the dual encoder that starts from it, label vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32
from joblib import cpu_count
from scipy.sparse import csr_array

from longtail.models.encoders.dual_encoder import encode_all
from longtail.models.encoders.tokens import TokenizedTexts, tokenize_texts
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.labels.text import text_for_encoder
from longtail.models.memory.vectors import ByteVectors
from longtail.models.names import CLASSIFIER, DENSE_NEIGHBOURS, LINEAR
from longtail.models.parts.dense_parts import DenseParts
from longtail.models.scorers.linear import LinearModel, LinearScorer
from longtail.models.scorers.markup import without_markup
from longtail.models.scorers.sparse import SparseModel, SparseSource
from longtail.training.configuration.run import TrainingConfig
from longtail.training.configuration.sections import LinearConfig, RetrievalConfig
from longtail.training.data.chunks import chunks
from longtail.training.linear.objective import fit_ridge
from longtail.training.linear.stage import train_linear_scorer
from longtail.training.memory.vectors import vector_memory
from longtail.training.neural.batching import LabelSubsets, hard_negatives
from longtail.training.neural.document_vectors import encode_documents, inference_copy
from longtail.training.neural.model import (
    DeplModel,
    TrainingTexts,
)
from longtail.training.pipeline.encoder_start import DenseStart
from longtail.training.runtime.run_log import progress_bar, stage_cost


def read_training_texts(
    start: DenseStart,
    config: TrainingConfig,
    documents: Iterable[str],
    catalogue: LabelCatalogue,
    truth: Float32[csr_array, "document label"],
) -> TrainingTexts:
    """Return what neural training reads; of the documents' text, one chunk is held at a time."""

    def tokens(*, has_keywords: bool) -> TokenizedTexts:
        texts = [text_for_encoder(label, is_tuned=has_keywords) for label in catalogue]
        most, prefix = config.descriptions.max_tokens, start.prefixes.label
        return tokenize_texts(start.tokenizer, texts, max_tokens=most, prefix=prefix)

    labels, views = tokens(has_keywords=config.is_tuned), None
    if config.is_tuned:
        views = TokenizedTexts.joined([labels, tokens(has_keywords=False)])
    return TrainingTexts(
        documents=_tokenized(start, config, documents),
        labels=labels,
        truth=truth,
        pad_id=int(start.tokenizer.pad_token_id or 0),
        label_views=views,
    )


def _tokenized(start: DenseStart, config: TrainingConfig, texts: Iterable[str]) -> TokenizedTexts:
    if config.remove_markup:
        texts = map(without_markup, texts)
    parts = [
        tokenize_texts(start.tokenizer, chunk, config.document_max_tokens, start.prefixes.document)
        for chunk in chunks(texts)
    ]
    return TokenizedTexts.joined(parts)


def find_label_subsets(
    config: RetrievalConfig,
    sparse: SparseModel,
    features: Float32[csr_array, "document feature"],
    truth: Float32[csr_array, "document label"],
) -> LabelSubsets:
    """Return the label subsets of training, with the sparse model's best wrong labels in them."""
    most_positives = int(np.diff(truth.indptr).max())
    source = SparseSource(sparse, features, num_threads=cpu_count())
    rows = np.arange(features.shape[0], dtype=np.int64)
    ranked = source.top(rows, config.hard_negatives + most_positives).labels
    hard = hard_negatives(ranked, truth, config.hard_negatives)
    return LabelSubsets(truth, hard, config.label_subset_size)


def finish_dense(
    start: DenseStart,
    texts: TrainingTexts,
    ids: Sequence[str],
    config: TrainingConfig,
    folder: Path,
) -> tuple[DenseParts, dict[str, Any]]:
    """Return the dense half of a bundle, once both stages are done, and the models of its scorers.

    The linear scorer is trained here.
    """
    model, machine = start.model, start.machine
    with (
        stage_cost(folder, "label vectors"),
        progress_bar(total=len(texts.labels), desc="label vectors", unit="label") as bar,
    ):
        vectors = encode_all(
            model.encoder,
            texts.labels,
            "label",
            pad_id=texts.pad_id,
            device=machine.device,
            progress=bar.update,
        )
    dense = DenseParts(
        encoder=model.encoder.eval(),
        tokenizer=start.tokenizer,
        max_tokens=config.document_max_tokens,
        label_vectors=vectors,
        document_prefix=start.prefixes.document,
        is_tuned=config.is_tuned,
    )
    models: dict[str, Any] = {}
    if CLASSIFIER in config.scorers:
        of_version = start.finished and start.finished[CLASSIFIER]
        models[CLASSIFIER] = of_version or _trained_classifier(model, texts.truth)
    if not {LINEAR, DENSE_NEIGHBOURS}.intersection(config.scorers):
        return dense, models
    with stage_cost(folder, "document vectors"):
        vectors = encode_documents(
            inference_copy(start.model.encoder, start.machine),
            texts.documents,
            pad_id=texts.pad_id,
            device=start.machine.device,
            folder=folder / "vectors",
        )
    if DENSE_NEIGHBOURS in config.scorers:
        models[DENSE_NEIGHBOURS] = vector_memory(ByteVectors.rounded(vectors), texts.truth, ids)
    if LINEAR in config.scorers:
        models[LINEAR] = _trained_linear(vectors, start, texts, config, folder)
    return dense, models


def _trained_linear(
    vectors: Float32[np.ndarray, "document dim"],
    start: DenseStart,
    texts: TrainingTexts,
    config: TrainingConfig,
    folder: Path,
) -> LinearScorer:
    """Train the linear scorer on document vectors; in closed form where nothing else is asked for.

    That is so where the encoder was not fine-tuned.
    """
    with stage_cost(folder, "linear"):
        if not config.is_tuned and config.linear == LinearConfig():
            return fit_ridge(vectors, texts.truth)
        return train_linear_scorer(
            vectors,
            texts.truth,
            config.linear,
            seed=config.seed,
            device=start.machine.device,
            folder=folder / "linear",
        )


def _trained_classifier(
    model: DeplModel, truth: Float32[csr_array, "document label"]
) -> LinearScorer:
    """Return the rows of the labels that have training documents; the others learned nothing."""
    labels = np.unique(truth.indices).astype(np.int64)
    weight = model.classifier.weight.detach().cpu().numpy()
    bias = model.classifier.bias.detach().cpu().numpy()
    return LinearScorer(LinearModel(weight[labels], bias[labels], labels), "none")
