"""The dense half of a run: the classifier, the dual encoder that starts from it, label vectors."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32
from joblib import cpu_count
from scipy.sparse import csr_array
from transformers import TokenizersBackend

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.manifest import EncoderInfo
from longtail.models.encoders.dual_encoder import encode_all
from longtail.models.encoders.families import num_positions
from longtail.models.encoders.pretrained import EncoderSource, find_encoder
from longtail.models.encoders.tokens import Prefixes, TokenizedTexts, tokenize_texts
from longtail.models.errors import ConfigError
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.labels.text import text_for_encoder
from longtail.models.memory.vectors import ByteVectors
from longtail.models.names import CLASSIFIER, DENSE_NEIGHBOURS, LINEAR
from longtail.models.parts.dense_parts import DenseParts
from longtail.models.parts.model_parts import ModelParts
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
    checkpoint_gradients,
    freeze_layers,
)
from longtail.training.pipeline.encoder_start import load_encoder
from longtail.training.runtime.distributed import ALONE, Machine, Processes, find_machine
from longtail.training.runtime.run_log import progress_bar, stage_cost

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DenseStart:
    """What the dense half starts from.

    Attributes:
        source: Where the encoder lies.
        machine: Where and how precisely it is trained.
        tokenizer: The encoder's.
        model: The encoder and a classifier at the labels' priors; trained in place.
        prefixes: Put before documents and label texts.
        finished: The models of a version whose encoder it is; None: it is to be trained.
    """

    source: EncoderSource
    machine: Machine
    tokenizer: TokenizersBackend
    model: DeplModel
    prefixes: Prefixes
    finished: Mapping[str, Any] | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the encoder is that of a version, and stays as it is."""
        return self.finished is not None

    def info(self, dense: DenseParts) -> EncoderInfo:
        """Return what a manifest says of the encoder."""
        head = dense.encoder.head
        return EncoderInfo(
            name=self.source.name,
            dim=dense.encoder.dim,
            max_tokens=dense.max_tokens,
            sha256=self.source.sha256,
            document_prefix=self.prefixes.document,
            label_prefix=self.prefixes.label,
            document_pooling=head.document_pooling,
            activation=head.activation,
            is_normalized=head.is_normalized,
            is_tuned=dense.is_tuned,
        )


def start_dense(
    config: TrainingConfig,
    truth: Float32[csr_array, "document label"],
    processes: Processes = ALONE,
) -> DenseStart:
    """Find the encoder and return the untrained model."""
    config.retrieval.check(truth.shape[1])
    if LINEAR in config.scorers:
        linear = config.linear.fitted_to(len(np.unique(truth.indices)))
        if linear.learning is not None:
            linear.learning.check(truth.shape[1], num_hard=0)
    machine = find_machine(config.precision, processes)
    source = find_encoder(config.encoder)
    found = load_encoder(source, config)
    tokenizer, encoder = found.tokenizer, found.encoder
    most_tokens = num_positions(encoder.transformer)
    for name, expected in (
        ("document_max_tokens", config.document_max_tokens),
        ("descriptions.max_tokens", config.descriptions.max_tokens),
    ):
        if expected > most_tokens:
            raise ConfigError(
                f"{name} is {expected}, but encoder {source.name!r} reads at most "
                f"{most_tokens} tokens"
            )
    freeze_layers(encoder, config.frozen_layers)
    if config.gradient_checkpointing:
        checkpoint_gradients(encoder)
    model = DeplModel(encoder, _priors(truth)).to(machine.device)
    return DenseStart(source, machine, tokenizer, model, found.prefixes)


def start_finished(
    bundle: Bundle,
    parts: ModelParts,
    config: TrainingConfig,
    truth: Float32[csr_array, "document label"],
) -> DenseStart:
    """Return a start that is done: the encoder of a version.

    Args:
        bundle: The version.
        parts: What it holds, an encoder among it.
        config: The run's configuration.
        truth: The labels of its documents.
    """
    dense, said = parts.dense, bundle.manifest.encoder
    assert dense is not None and said is not None  # both or neither: see `check_parts`
    machine = find_machine(config.precision)
    model = DeplModel(dense.encoder, _priors(truth)).to(machine.device)
    source = EncoderSource(said.name, bundle.encoder_folder, said.sha256)
    prefixes = Prefixes(said.document_prefix, said.label_prefix)
    return DenseStart(source, machine, dense.tokenizer, model, prefixes, parts.models)


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


def _priors(truth: Float32[csr_array, "document label"]) -> Float32[np.ndarray, label]:
    """Return the share of documents with each label, half a document added on either side."""
    num_documents, num_labels = truth.shape
    counts = np.bincount(truth.indices, minlength=num_labels).astype(np.float32)
    shares: Float32[np.ndarray, label] = (counts + 0.5) / np.float32(num_documents + 1)
    return shares
