"""The dense half of a run, from its start to its parts; importing it imports PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64
from joblib import cpu_count
from scipy.sparse import csr_array

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
from longtail.training.data.documents import TrainingDocuments
from longtail.training.learning.objectives import make_objective, make_subset_loss
from longtail.training.linear.objective import fit_ridge
from longtail.training.linear.stage import train_linear_scorer
from longtail.training.memory.vectors import vector_memory
from longtail.training.neural.batching import LabelSubsets, hard_negatives
from longtail.training.neural.document_vectors import encode_texts, inference_copy
from longtail.training.neural.loop import Stages
from longtail.training.neural.model import DeplModel, TrainingTexts
from longtail.training.neural.steps import (
    PairBatches,
    Step,
    classifier_step,
    encoder_inputs,
    pair_step,
    retrieval_step,
    start_scores,
)
from longtail.training.pipeline.encoder_free import EncoderFree
from longtail.training.pipeline.encoder_start import (
    DenseStart,
    keep_embeddings,
    kept_pieces,
    start_dense,
    tokenizer_of,
)
from longtail.training.runtime.distributed import Machine, Processes
from longtail.training.runtime.run_log import stage_cost


@dataclass(frozen=True, slots=True)
class TrainingInputs:
    """What both stages of neural training read.

    Attributes:
        texts: Documents and label descriptions.
        subsets: The labels that each step of the dual encoder scores; None: none is trained.
        kept: The pieces of words that the encoder keeps; None: all.
    """

    texts: TrainingTexts
    subsets: LabelSubsets | None
    kept: Int64[np.ndarray, kept] | None = None


def train_dense(
    start: DenseStart,
    config: TrainingConfig,
    documents: TrainingDocuments,
    found: EncoderFree,
    folder: Path,
) -> tuple[DenseParts, dict[str, Any]]:
    """Train the model of a start in place, and models of its scorers; other processes follow.

    An encoder that is finished makes vectors alone.
    """
    with stage_cost(folder, "tokens and hard negatives"):
        kept = None
        if not start.is_finished:
            kept = kept_pieces(start.tokenizer, _encoded(start, config, documents, found.catalogue))
        if kept is not None:
            start = replace(start, tokenizer=tokenizer_of(start.tokenizer, kept))
        read = documents.train.texts()
        texts = read_training_texts(start, config, read, found.catalogue, found.truth)
        subsets = None
        if config.is_tuned and not start.is_finished:
            subsets = find_label_subsets(
                config.retrieval, found.sparse, found.features, found.truth
            )
    inputs = TrainingInputs(texts, subsets, kept)
    start.machine.processes.from_first(lambda: inputs)
    train_stages(start, inputs, config, folder)
    ids = [document.id for document in documents.train]
    return finish_dense(start, texts, ids, config, folder)


def _encoded(
    start: DenseStart,
    config: TrainingConfig,
    documents: TrainingDocuments,
    catalogue: LabelCatalogue,
) -> Iterator[str]:
    """Give all texts of train and dev, and of the labels, as the encoder reads them, but uncut."""
    for split in filter(None, (documents.train, documents.dev)):
        for text in split.texts():
            yield start.prefixes.document + (without_markup(text) if config.remove_markup else text)
    for label in catalogue:
        yield start.prefixes.label + label.pseudo_description


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


def follow(config: TrainingConfig, processes: Processes) -> None:
    """Take part in the neural stages of the run that the first process trains and writes."""
    if not config.is_dense:
        return
    with TemporaryDirectory(prefix="longtail-") as folder, Machine.reproducible():
        inputs: TrainingInputs = processes.from_first(_unknown)
        start = start_dense(config, inputs.texts.truth, processes)
        train_stages(start, inputs, config, Path(folder))


def _unknown() -> TrainingInputs:
    raise AssertionError("the first process makes it")


def train_stages(
    start: DenseStart,
    inputs: TrainingInputs,
    config: TrainingConfig,
    folder: Path,
) -> None:
    """Train the dense classifier, then the dual encoder that starts from it (DEPL 3.3, 3.5).

    Args:
        start: Its model is trained in place, by all processes of its machine, which then part.
        inputs: What is read; the same in all processes.
        config: The run's configuration.
        folder: The run's folder; each stage keeps its checkpoints there, and resumes after the
            newest. Other processes than the first: a folder for what none will need.
    """
    model, machine, texts = start.model, start.machine, inputs.texts
    if inputs.kept is not None:
        keep_embeddings(model.encoder, inputs.kept)
    if inputs.subsets is None:
        machine.processes.leave()
        return
    stages = Stages(texts, config.seed, machine, folder)
    with stage_cost(folder, "classifier"):
        step = classifier_step(model, texts, machine)
        stages.train("classifier", model, step, config.classifier)
    start_scores(model.encoder, texts)
    with stage_cost(folder, "retrieval"):
        step = _retrieval_step(start, texts, inputs.subsets, config, folder)
        stages.train("retrieval", model, step, config.retrieval)
    machine.processes.leave()


def _retrieval_step(
    start: DenseStart,
    texts: TrainingTexts,
    subsets: LabelSubsets,
    config: TrainingConfig,
    folder: Path,
) -> Step:
    """Return the dual encoder's step: over label subsets, or over pairs and their negatives."""
    model, machine, retrieval = start.model, start.machine, config.retrieval
    keep = CLASSIFIER in config.scorers
    if retrieval.negatives is None:
        loss = make_subset_loss(retrieval.loss)
        return retrieval_step(model, texts, subsets, machine, loss=loss, keep_classifier=keep)
    inputs = encoder_inputs(
        model,
        texts,
        subsets.hard,
        retrieval,
        machine,
        seed=config.seed,
        folder=folder / "retrieval-negatives",
    )
    batches = PairBatches(
        texts.truth,
        retrieval.negatives.exclude,
        retrieval.negatives.most_pairs(retrieval.label_subset_size),
    )
    objective = make_objective(retrieval.learning, inputs)
    return pair_step(model, texts, batches, objective, machine, keep_classifier=keep)


def finish_dense(
    start: DenseStart,
    texts: TrainingTexts,
    ids: Sequence[str],
    config: TrainingConfig,
    folder: Path,
    suffix: str = "",
) -> tuple[DenseParts, dict[str, Any]]:
    """Return the dense half of a bundle, once both stages are done, and the models of its scorers.

    The linear scorer is trained here.

    Args:
        start: Its model is trained.
        texts: Documents and labels.
        ids: Those of the documents.
        config: The run's configuration.
        folder: The run's folder, which keeps the vectors.
        suffix: Tells these documents from others of the same run.
    """
    model, machine = start.model, start.machine
    encode = partial(
        encode_texts, pad_id=texts.pad_id, device=machine.device, folder=folder / f"vectors{suffix}"
    )
    with stage_cost(folder, "label vectors"):
        kept_in = folder / "label-vectors"
        vectors = encode(model.encoder, texts.labels, "label", folder=kept_in)
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
    with stage_cost(folder, f"document vectors{suffix}"):
        vectors = encode(inference_copy(model.encoder, machine), texts.documents, "document")
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
