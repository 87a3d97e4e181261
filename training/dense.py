"""The dense half of a run: the classifier, the dual encoder that starts from it, label vectors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32
from joblib import cpu_count
from scipy.sparse import csr_array
from tqdm import tqdm
from transformers import TokenizersBackend

from models.dual_encoder import DualEncoder, encode_all
from models.encoder import (
    EncoderSource,
    TokenizedTexts,
    find_encoder,
    load_tokenizer,
    load_transformer,
    tokenize_texts,
    window_of,
)
from models.errors import ConfigError
from models.labels import LabelCatalogue
from models.linear import LinearModel
from models.parts import CLASSIFIER, DenseParts
from models.ranking import rank
from models.sparse import SparseModel, SparseSource
from training.assessment import chunks
from training.config import RetrievalConfig, TrainingConfig
from training.corpus import Dataset
from training.learning_config import LearningConfig
from training.negatives import LabelSubsets, hard_negatives
from training.neural import (
    DeplModel,
    Machine,
    Stages,
    TrainingTexts,
    classifier_step,
    find_machine,
    freeze_layers,
    retrieval_step,
    start_scores,
)
from training.objectives import make_subset_loss


@dataclass(frozen=True, slots=True)
class DenseStart:
    """What the dense half starts from.

    Attributes:
        source: Where the encoder lies.
        machine: Where and how precisely it is trained.
        tokenizer: The encoder's.
        model: The encoder and a classifier at the labels' priors; trained in place.
    """

    source: EncoderSource
    machine: Machine
    tokenizer: TokenizersBackend
    model: DeplModel


def start_dense(config: TrainingConfig, truth: Float32[csr_array, "document label"]) -> DenseStart:
    """Find the encoder and return the untrained model.

    Args:
        config: Which encoder, and what is asked of it.
        truth: The labels of the training documents.

    Raises:
        ConfigError: There is no such encoder, it has not so many layers to freeze, or it can't read
            so many tokens; or the loss wants more labels than there are.
    """
    LearningConfig(loss=config.retrieval.loss).check(
        truth.shape[1], config.retrieval.hard_negatives
    )
    machine = find_machine(config.precision)
    source = find_encoder(config.encoder)
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)  # of weights that the encoder's files lack
        encoder = DualEncoder(load_transformer(source.folder))
    window = window_of(encoder.transformer)
    for name, wanted in (
        ("document_max_tokens", config.document_max_tokens),
        ("descriptions.max_tokens", config.descriptions.max_tokens),
    ):
        if wanted > window:
            raise ConfigError(
                f"{name} is {wanted}, but encoder {source.name!r} reads at most {window} tokens"
            )
    freeze_layers(encoder, config.frozen_layers)
    model = DeplModel(encoder, _priors(truth)).to(machine.device)
    return DenseStart(source, machine, load_tokenizer(source.folder), model)


def read_training_texts(
    start: DenseStart,
    config: TrainingConfig,
    dataset: Dataset,
    catalogue: LabelCatalogue,
    truth: Float32[csr_array, "document label"],
) -> TrainingTexts:
    """Return what neural training reads; of the documents' text, one chunk is held at a time.

    Args:
        start: Its tokenizer is used.
        config: How many tokens are read.
        dataset: The corpus.
        catalogue: The labels with their pseudo descriptions.
        truth: The labels of the training documents.
    """
    documents = [
        tokenize_texts(start.tokenizer, chunk, config.document_max_tokens)
        for chunk in chunks(dataset.split("train").texts())
    ]
    return TrainingTexts(
        documents=TokenizedTexts.joined(documents),
        labels=tokenize_texts(
            start.tokenizer,
            [label.pseudo_description for label in catalogue],
            config.descriptions.max_tokens,
        ),
        truth=truth,
        pad_id=int(start.tokenizer.pad_token_id or 0),
    )


def find_label_subsets(
    config: RetrievalConfig,
    sparse: SparseModel,
    features: Float32[csr_array, "document feature"],
    truth: Float32[csr_array, "document label"],
) -> LabelSubsets:
    """Return the label subsets of training, with the sparse model's best wrong labels in them.

    Args:
        config: How many of each.
        sparse: The trained sparse model.
        features: What it reads of the training documents.
        truth: Their labels.
    """
    most_positives = int(np.diff(truth.indptr).max())
    source = SparseSource(sparse, features, num_threads=cpu_count())
    ranked = rank([source], config.hard_negatives + most_positives).labels
    hard = hard_negatives(ranked, truth, config.hard_negatives)
    return LabelSubsets(truth, hard, config.label_subset_size)


def train_dense(
    start: DenseStart,
    texts: TrainingTexts,
    subsets: LabelSubsets,
    config: TrainingConfig,
    folder: Path,
) -> DenseParts:
    """Train the dense classifier, then the dual encoder (DEPL sections 3.3 and 3.5).

    Args:
        start: Its model is trained in place.
        texts: Documents and label descriptions.
        subsets: The labels that each step of the dual encoder scores.
        config: Of both stages.
        folder: Of the run; each stage keeps its checkpoints there, and goes on after the newest.
    """
    model, machine = start.model, start.machine
    stages = Stages(texts, config.seed, machine, folder)
    stages.train("classifier", model, classifier_step(model, texts, machine), config.classifier)
    start_scores(model.encoder, texts, cosine_scale=config.retrieval.cosine_scale)
    keep = CLASSIFIER in config.scorers
    loss = make_subset_loss(config.retrieval.loss)
    step = retrieval_step(model, texts, subsets, machine, loss=loss, keep_classifier=keep)
    stages.train("retrieval", model, step, config.retrieval)
    with tqdm(total=len(texts.labels), desc="label vectors", unit="label", mininterval=1.0) as bar:
        vectors = encode_all(
            model.encoder,
            texts.labels,
            "label",
            pad_id=texts.pad_id,
            device=machine.device,
            progress=bar.update,
        )
    return DenseParts(
        encoder=model.encoder.eval(),
        tokenizer=start.tokenizer,
        max_tokens=config.document_max_tokens,
        label_vectors=vectors,
        classifier=_trained_classifier(model, texts.truth) if keep else None,
    )


def _trained_classifier(
    model: DeplModel, truth: Float32[csr_array, "document label"]
) -> LinearModel:
    """Return the rows of the labels that have training documents; the others learned nothing."""
    labels = np.unique(truth.indices).astype(np.int64)
    weight = model.classifier.weight.detach().cpu().numpy()
    bias = model.classifier.bias.detach().cpu().numpy()
    return LinearModel(weight[labels], bias[labels], labels)


def _priors(truth: Float32[csr_array, "document label"]) -> Float32[np.ndarray, "label"]:
    """Return the share of documents with each label, half a document added on either side."""
    num_documents, num_labels = truth.shape
    counts = np.bincount(truth.indices, minlength=num_labels).astype(np.float32)
    shares: Float32[np.ndarray, "label"] = (counts + 0.5) / np.float32(num_documents + 1)
    return shares
