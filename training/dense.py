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
from models.linear import LinearModel, LinearScorer
from models.parts import CLASSIFIER, LINEAR, DenseParts
from models.ranking import rank
from models.sparse import SparseModel, SparseSource
from training.assessment import chunks
from training.config import RetrievalConfig, TrainingConfig
from training.corpus import Dataset
from training.learning_config import TreeFitConfig
from training.linear_stage import encode_documents, train_linear_scorer
from training.negatives import LabelSubsets, hard_negatives
from training.neural import (
    DeplModel,
    Machine,
    Stages,
    Step,
    TrainingTexts,
    classifier_step,
    find_machine,
    freeze_layers,
    retrieval_step,
    start_scores,
)
from training.objectives import make_objective, make_subset_loss
from training.pair_steps import PairBatches, encoder_material, pair_step
from training.run_log import stage_cost


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
            so many tokens; the loss wants more labels than there are, or the label tree more
            dimensions than document vectors have.
    """
    config.retrieval.check(truth.shape[1])
    if LINEAR in config.scorers and config.linear.learning is not None:
        config.linear.learning.check(truth.shape[1], num_hard=0)
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
    _check_components(config, source, encoder.dim)
    freeze_layers(encoder, config.frozen_layers)
    model = DeplModel(encoder, _priors(truth)).to(machine.device)
    return DenseStart(source, machine, load_tokenizer(source.folder), model)


def _check_components(config: TrainingConfig, source: EncoderSource, dim: int) -> None:
    """Refuse a label tree that wants more dimensions than document vectors have.

    Raises:
        ConfigError: It does.
    """
    negatives = config.retrieval.negatives
    trees = {
        "retrieval.negatives.q": None if negatives is None else negatives.q,
        "linear.tree": config.linear.tree_fit if LINEAR in config.scorers else None,
    }
    for name, tree in trees.items():
        if isinstance(tree, TreeFitConfig) and tree.components > dim:
            raise ConfigError(
                f"{name}.components is {tree.components}, but document vectors of encoder "
                f"{source.name!r} have {dim} dimensions; wanted at most so many"
            )


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
    """Train the dense classifier, the dual encoder (DEPL 3.3, 3.5), then the linear scorer.

    Args:
        start: Its model is trained in place.
        texts: Documents and label descriptions.
        subsets: The labels that each step of the dual encoder scores.
        config: Of both stages.
        folder: Of the run; each stage keeps its checkpoints there, and goes on after the newest.
    """
    model, machine = start.model, start.machine
    stages = Stages(texts, config.seed, machine, folder)
    with stage_cost(folder, "classifier"):
        stages.train("classifier", model, classifier_step(model, texts, machine), config.classifier)
    start_scores(model.encoder, texts, cosine_scale=config.retrieval.cosine_scale)
    keep = CLASSIFIER in config.scorers
    with stage_cost(folder, "retrieval"):
        step = _retrieval_step(start, texts, subsets, config, folder)
        stages.train("retrieval", model, step, config.retrieval)
    with (
        stage_cost(folder, "label vectors"),
        tqdm(total=len(texts.labels), desc="label vectors", unit="label", mininterval=1.0) as bar,
    ):
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
        linear=_trained_linear(start, texts, config, folder) if LINEAR in config.scorers else None,
    )


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
    material = encoder_material(
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
    objective = make_objective(retrieval.learning, material)
    return pair_step(model, texts, batches, objective, machine, keep_classifier=keep)


def _trained_linear(
    start: DenseStart, texts: TrainingTexts, config: TrainingConfig, folder: Path
) -> LinearScorer:
    """Train the linear scorer on the document vectors of the trained dual encoder."""
    with stage_cost(folder, "document vectors"):
        vectors = encode_documents(
            start.model.encoder,
            texts.documents,
            pad_id=texts.pad_id,
            device=start.machine.device,
            folder=folder / "linear" / "vectors",
        )
    with stage_cost(folder, "linear"):
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
