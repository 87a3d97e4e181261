"""The dense half of a run, from its start to its parts; importing it imports PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from jaxtyping import Int64

from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.names import CLASSIFIER
from longtail.models.parts.dense_parts import DenseParts
from longtail.models.scorers.markup import without_markup
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.documents import TrainingDocuments
from longtail.training.learning.objectives import make_objective, make_subset_loss
from longtail.training.neural.batching import LabelSubsets
from longtail.training.neural.loop import Stages
from longtail.training.neural.model import TrainingTexts
from longtail.training.neural.steps import (
    PairBatches,
    Step,
    classifier_step,
    encoder_inputs,
    pair_step,
    retrieval_step,
    start_scores,
)
from longtail.training.pipeline.dense import (
    find_label_subsets,
    finish_dense,
    read_training_texts,
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
        config: Configuration of both stages.
        folder: The run's folder; each stage keeps its checkpoints there, and resumes after the
            newest. Of the other processes than the first: a folder for what none will need.
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
