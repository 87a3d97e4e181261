"""A training run, from a corpus to a published bundle; each stage resumes where it was killed."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from scipy.sparse import csr_array
from tqdm import tqdm
from transformers import TokenizersBackend

from models.bundle import read_json, write_json_durably
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
from models.errors import ConfigError, DataError
from models.labels import LabelCatalogue
from models.manifest import EncoderInfo, Manifest
from models.parts import LinearModel, ModelParts, write_parts
from models.predictor import Predictor
from models.ranking import rank
from models.registry import Registry
from models.sparse import SparseModel, SparseSource
from training.assessment import assess, chunks
from training.config import RetrievalConfig, TrainingConfig
from training.corpus import Dataset
from training.descriptions import keywords_of_labels, pseudo_descriptions
from training.evaluation import ALL_LABELS
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
from training.sparse import fit_sparse_model, fit_tfidf

logger = logging.getLogger(__name__)
_RUN_NAME = "run.json"
_CHOICE_METRICS = ("P@5", "P@1")  # the first measured one decides the default scorer, on dev


@dataclass(frozen=True, slots=True)
class Run:
    """One training run.

    Attributes:
        config: What to train.
        dataset: On what.
        folder: Where its work lies; a run started again on it goes on.
    """

    config: TrainingConfig
    dataset: Dataset
    folder: Path


def train(run: Run, registry: Registry) -> int:
    """Train everything that a bundle holds, publish it, and return its version.

    Started again on the same folder, a run goes on after what it has done; a finished one
    publishes the same bundle again, which the registry recognises.

    Raises:
        DataError: The corpus has broken lines, no training documents, or no usable token.
        ConfigError: The folder holds another run, or the configuration asks for what there isn't.
    """
    config = run.config
    run.dataset.check()
    truth = run.dataset.split("train").scan().labels
    if truth.nnz == 0:
        raise DataError(f"{run.dataset.folder}: no training document has a label")
    machine = find_machine(config.precision)
    source = find_encoder(config.encoder)
    model = _first_model(config, source, truth, machine)
    _claim_folder(run, source, machine)
    with _reproducible():
        tfidf, features = fit_tfidf(run.dataset.split("train").texts(), config.sparse)
        sparse = fit_sparse_model(
            tfidf, features, truth, config.sparse, seed=config.seed, folder=run.folder / "sparse"
        )
        parts = _train_dense(run, source, model, machine, sparse, features, truth)
        metrics = _dev_metrics(run.dataset, parts, truth.shape[0])
    manifest = _manifest(run, source, parts, truth.shape[0], metrics)
    return _publish(run, parts, manifest, registry)


def _described(run: Run, sparse: SparseModel) -> LabelCatalogue:
    """Return the catalogue with its pseudo descriptions."""
    catalogue = run.dataset.catalogue
    keywords = keywords_of_labels(sparse, catalogue, run.config.descriptions)
    return catalogue.replaced(pseudo_description=pseudo_descriptions(catalogue, keywords))


def _train_dense(
    run: Run,
    source: EncoderSource,
    model: DeplModel,
    machine: Machine,
    sparse: SparseModel,
    features: Float32[csr_array, "document feature"],
    truth: Float32[csr_array, "document label"],
) -> ModelParts:
    """Train the dense classifier, then the dual encoder, and return all parts of the model."""
    config = run.config
    tokenizer = load_tokenizer(source.folder)
    catalogue = _described(run, sparse)
    texts = TrainingTexts(
        documents=_tokenize_split(run.dataset, tokenizer, config),
        labels=tokenize_texts(
            tokenizer,
            [label.pseudo_description for label in catalogue],
            config.descriptions.max_tokens,
        ),
        truth=truth,
        pad_id=int(tokenizer.pad_token_id or 0),
    )
    stages = Stages(texts, config.seed, machine, run.folder)
    stages.train("classifier", model, classifier_step(model, texts, machine), config.classifier)
    start_scores(model.encoder, texts, cosine_scale=config.retrieval.cosine_scale)
    subsets = _label_subsets(config.retrieval, sparse, features, truth)
    keep = config.retrieval.keep_classifier
    step = retrieval_step(model, texts, subsets, machine, keep_classifier=keep)
    stages.train("retrieval", model, step, config.retrieval)
    return _assemble(model, texts, tokenizer, catalogue, sparse, run, machine)


def _first_model(
    config: TrainingConfig,
    source: EncoderSource,
    truth: Float32[csr_array, "document label"],
    machine: Machine,
) -> DeplModel:
    """Return the untrained model.

    Raises:
        ConfigError: The encoder has not so many layers to freeze, or can't read so many tokens.
    """
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
    return DeplModel(encoder, _priors(truth)).to(machine.device)


def _label_subsets(
    config: RetrievalConfig,
    sparse: SparseModel,
    features: Float32[csr_array, "document feature"],
    truth: Float32[csr_array, "document label"],
) -> LabelSubsets:
    """Return the label subsets of training, with the sparse model's best wrong labels in them."""
    most_positives = int(np.diff(truth.indptr).max())
    ranked = rank([SparseSource(sparse, features)], config.hard_negatives + most_positives).labels
    hard = hard_negatives(ranked, truth, config.hard_negatives)
    return LabelSubsets(truth, hard, config.label_subset_size)


def _assemble(
    model: DeplModel,
    texts: TrainingTexts,
    tokenizer: TokenizersBackend,
    catalogue: LabelCatalogue,
    sparse: SparseModel,
    run: Run,
    machine: Machine,
) -> ModelParts:
    with tqdm(total=len(texts.labels), desc="label vectors", unit="label", mininterval=1.0) as bar:
        vectors = encode_all(
            model.encoder,
            texts.labels,
            "label",
            pad_id=texts.pad_id,
            device=machine.device,
            progress=bar.update,
        )
    classifier = None
    if run.config.retrieval.keep_classifier:
        weight = model.classifier.weight.detach().cpu().numpy()
        bias = model.classifier.bias.detach().cpu().numpy()
        classifier = LinearModel(weight[sparse.labels], bias[sparse.labels], sparse.labels)
    return ModelParts(
        catalogue=catalogue,
        encoder=model.encoder.eval(),
        tokenizer=tokenizer,
        max_tokens=run.config.document_max_tokens,
        label_vectors=vectors,
        classifier=classifier,
        sparse=sparse,
    )


def _dev_metrics(dataset: Dataset, parts: ModelParts, num_documents: int) -> dict[str, Any]:
    """Return the metrics of every scorer on the dev split, as fractions; empty without one."""
    if "dev" not in dataset.split_names:
        logger.warning("%s has no dev split: the default scorer is not chosen", dataset.folder)
        return {}
    evaluation = assess(
        Predictor(parts), dataset, "dev", num_training_documents=num_documents
    ).evaluation
    logger.info("dev split:\n%s", evaluation.overall_table())
    return {
        name: {subset: dict(found.values) for subset, found in subsets.items()}
        for name, subsets in evaluation.scorers.items()
    }


def _manifest(
    run: Run,
    source: EncoderSource,
    parts: ModelParts,
    num_documents: int,
    metrics: dict[str, Any],
) -> Manifest:
    """Return what the bundle says of itself, but for its files."""
    default = parts.scorers[0]
    if metrics:  # of equally good scorers, the first
        measured = metrics[default][ALL_LABELS]  # no P@5 where there are fewer than 5 labels
        choice = next(name for name in _CHOICE_METRICS if name in measured)
        default = max(parts.scorers, key=lambda name: metrics[name][ALL_LABELS][choice])
    return Manifest(
        label_count=len(parts.catalogue),
        training_document_count=num_documents,
        encoder=EncoderInfo(source.name, parts.encoder.dim, parts.max_tokens, source.sha256),
        scorers=parts.scorers,
        default_scorer=default,
        training=run.config.model_dump(mode="json") | {"encoder": source.name},
        data_fingerprint=run.dataset.fingerprint,
        metrics={"dev": metrics} if metrics else {},
        longtail_version=version("longtail"),
    )


def _publish(run: Run, parts: ModelParts, manifest: Manifest, registry: Registry) -> int:
    scratch = run.folder / "encoder"
    shutil.rmtree(scratch, ignore_errors=True)
    return registry.publish(lambda folder: write_parts(folder, parts, manifest, scratch))


def _tokenize_split(
    dataset: Dataset, tokenizer: TokenizersBackend, config: TrainingConfig
) -> TokenizedTexts:
    """Return the training documents as tokens; of their text, one chunk is held at a time."""
    training = dataset.split("train")
    parts = [
        tokenize_texts(tokenizer, chunk, config.document_max_tokens)
        for chunk in chunks(training.texts())
    ]
    return TokenizedTexts.joined(parts)


def _priors(truth: Float32[csr_array, "document label"]) -> Float32[np.ndarray, "label"]:
    """Return the share of documents with each label, half a document added on either side."""
    num_documents, num_labels = truth.shape
    counts = np.bincount(truth.indices, minlength=num_labels).astype(np.float32)
    shares: Float32[np.ndarray, "label"] = (counts + 0.5) / np.float32(num_documents + 1)
    return shares


def _claim_folder(run: Run, source: EncoderSource, machine: Machine) -> None:
    """Note in the run's folder what is trained there; refuse a folder that holds another run.

    Raises:
        ConfigError: It does.
    """
    path = run.folder / _RUN_NAME
    wanted = {
        "config": run.config.model_dump(mode="json"),
        "data_fingerprint": run.dataset.fingerprint,
        "encoder_sha256": source.sha256,
        "is_bfloat16": machine.is_bfloat16,
        "device": machine.device,
    }
    run.folder.mkdir(parents=True, exist_ok=True)
    found = read_json(path) if path.exists() else wanted
    if found != wanted:
        differing = sorted(key for key in wanted if found.get(key) != wanted[key])
        raise ConfigError(
            f"folder {str(run.folder)!r} holds the work of another run (its {', '.join(differing)} "
            "differs); choose another with --work, or delete it"
        )
    write_json_durably(path, wanted)


@contextmanager
def _reproducible() -> Iterator[None]:
    """Let PyTorch take only operations that give the same bits every time."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, cuBLAS refuses
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
