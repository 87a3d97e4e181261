"""A training run, from a corpus to a published bundle; each stage resumes where it was killed."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from jaxtyping import Float32
from scipy.sparse import csr_array

from models.bundle.manifest import EncoderInfo, Manifest
from models.bundle.registry import Registry
from models.errors import ConfigError, DataError
from models.files.failures import doing
from models.files.outputs import check_writable_folder, held
from models.labels.catalogue import LabelCatalogue
from models.names import ENSEMBLE, HYBRID
from models.parts.model_parts import DenseParts, ModelParts
from models.parts.storage import write_parts
from models.scorers.sparse import SparseModel
from training.configuration.run import TrainingConfig
from training.data.dataset import Dataset
from training.data.survey import Survey, survey
from training.evaluation.by_frequency import ALL_LABELS
from training.pipeline.dense import (
    DenseStart,
    check_start,
    find_label_subsets,
    finish_dense,
    read_dev_samples,
    read_training_texts,
    start_dense,
)
from training.pipeline.dense_stages import TrainingInputs, train_stages
from training.pipeline.dev_split import DevSplit
from training.runtime.claims import claim
from training.runtime.distributed import ALONE, Processes
from training.runtime.ray import LOCAL, Executor
from training.runtime.run_log import stage_cost
from training.sparse.descriptions import keywords_of_labels, pseudo_descriptions, related
from training.sparse.fit import fit_sparse_model
from training.sparse.vocabulary import fit_tfidf_of

logger = logging.getLogger(__name__)
Metrics = dict[str, Any]
"""By scorer, subset of the labels, and name."""
RUN_NAME = "run.json"
_CHOICE_METRICS = ("P@5", "P@1")  # the first measured one decides the default scorer, on dev


@dataclass(frozen=True, slots=True)
class Run:
    """One training run.

    Attributes:
        config: What to train.
        dataset: On what.
        folder: Where its work lies; a run started again on it resumes.
        processes: The processes that train it; this one is the first.
        has_events: Whether to write files for TensorBoard.
        engine: What fits the sparse model.
    """

    config: TrainingConfig
    dataset: Dataset
    folder: Path
    processes: Processes = ALONE
    has_events: bool = False
    engine: Executor = LOCAL


def train(run: Run, registry: Registry) -> int:
    """Train everything that a bundle holds, publish it, and return its version.

    Started again on the same folder, a run resumes after what it has done; a finished one
    publishes the same bundle again, which the registry recognises.

    Raises:
        DataError: The corpus has broken lines, no training documents, or no usable token.
        ConfigError: The folder holds another run, or the configuration asks for what there isn't.
    """
    _check_input(run)
    registry.check_writable()
    check_writable_folder(run.folder, "--work")
    run.dataset.check()
    truth = run.dataset.split("train").scan().labels
    if truth.nnz == 0:
        raise DataError(f"{run.dataset.folder}: no training document has a label")
    surveyed = survey(run.dataset.split("train"), run.config.warmup_texts)
    start = _start(run, truth, surveyed.sample) if run.config.is_dense else None
    run.folder.mkdir(parents=True, exist_ok=True)
    refusal = f"--work {str(run.folder)!r}: another run works in it; wait for it, or choose another"
    with doing("training", run.folder), held(run.folder / ".lock", refusal):
        _claim_folder(run, start)
        return _train_all(run, start, truth, surveyed, registry)


def _train_all(
    run: Run,
    start: DenseStart | None,
    truth: Float32[csr_array, "document label"],
    surveyed: Survey,
    registry: Registry,
) -> int:
    """Train in a folder that this process holds, and return the version that is published."""
    config = run.config
    with _reproducible():
        with stage_cost(run.folder, "features"):
            tfidf, features = fit_tfidf_of(
                run.dataset.split("train"), config.sparse, surveyed.unspaced_share
            )
        with stage_cost(run.folder, "sparse"):
            sparse = fit_sparse_model(
                tfidf, features, truth, config.sparse,
                seed=config.seed, folder=run.folder / "sparse", engine=run.engine,
            )  # fmt: skip
            catalogue = _described(run, sparse)
        dense = _train_dense(run, start, catalogue, sparse, features, truth) if start else None
        parts = ModelParts(catalogue, sparse, dense, has_hybrid=HYBRID in config.scorers)
        parts, metrics = _finished_on_dev(run, parts, truth.shape[0])
    manifest = _manifest(run, start, parts, truth.shape[0], metrics)
    with stage_cost(run.folder, "bundle"):
        return _publish(run, parts, manifest, surveyed.warmup_texts, registry)


def _start(
    run: Run, truth: Float32[csr_array, "document label"], sample: Sequence[str]
) -> DenseStart:
    """Return what the dense half starts from, once it is tried on the corpus.

    Raises:
        ConfigError: It is not to be had, or can't do what the run asks of it.
    """
    with _reproducible():
        start = start_dense(run.config, truth, run.processes)
        check_start(start, run.config, sample)
    return start


def follow(config: TrainingConfig, processes: Processes) -> None:
    """Take part in the neural stages of the run that the first process trains and writes.

    Args:
        config: Of the run.
        processes: The processes; this one is not the first.
    """
    if not config.is_dense:
        return
    with TemporaryDirectory(prefix="longtail-") as folder, _reproducible():
        inputs: TrainingInputs = processes.from_first(_unknown)
        start = start_dense(config, inputs.texts.truth, processes)
        train_stages(start, inputs, config, Path(folder))


def _unknown() -> TrainingInputs:
    raise AssertionError("the first process makes it")


def _check_input(run: Run) -> None:
    """Refuse early stopping without a dev split, and say which settings decide nothing.

    Raises:
        ConfigError: The configuration has early stopping, and the corpus no dev split.
    """
    config = run.config
    stages = {"classifier": config.classifier, "retrieval": config.retrieval}
    stopped = [name for name, stage in stages.items() if stage.early_stopping is not None]
    if config.is_dense and stopped and "dev" not in run.dataset.split_names:
        raise ConfigError(
            f"{stopped[0]}.early_stopping measures on the dev split, which "
            f"{str(run.dataset.folder)!r} lacks; add one, or leave early_stopping out"
        )
    if ignored := config.keys_ignored:
        logger.warning(
            "scorers %s: these settings decide nothing: %s",
            ", ".join(config.scorers), ", ".join(ignored),
        )  # fmt: skip


def _train_dense(
    run: Run,
    start: DenseStart,
    catalogue: LabelCatalogue,
    sparse: SparseModel,
    features: Float32[csr_array, "document feature"],
    truth: Float32[csr_array, "document label"],
) -> DenseParts:
    with stage_cost(run.folder, "tokens and hard negatives"):
        texts = read_training_texts(start, run.config, run.dataset, catalogue, truth)
        subsets = find_label_subsets(run.config.retrieval, sparse, features, truth)
        dev = read_dev_samples(start, run.config, run.dataset)
    inputs = TrainingInputs(texts, subsets, dev)
    run.processes.from_first(lambda: inputs)
    events = run.folder / "tensorboard" if run.has_events else None
    train_stages(start, inputs, run.config, run.folder, events)
    return finish_dense(start, texts, run.config, run.folder)


def _described(run: Run, sparse: SparseModel) -> LabelCatalogue:
    """Return the catalogue with its pseudo descriptions."""
    catalogue = related(run.dataset.catalogue, run.config.descriptions)
    keywords = keywords_of_labels(sparse, catalogue, run.config.descriptions)
    return catalogue.replaced(pseudo_description=pseudo_descriptions(catalogue, keywords))


def _finished_on_dev(run: Run, parts: ModelParts, num_documents: int) -> tuple[ModelParts, Metrics]:
    """Return the parts with what is fitted on the dev split, and their metrics; or as they are."""
    if "dev" not in run.dataset.split_names:
        logger.warning(
            "%s has no dev split: no probabilities are calibrated, there is no ensemble, and the "
            "default scorer is not chosen",
            run.dataset.folder,
        )
        return parts, {}
    config = run.config.ensemble if ENSEMBLE in run.config.scorers else None
    with stage_cost(run.folder, "probabilities"):
        dev = DevSplit.of(run.dataset, parts, num_documents)
        found = dev.blending(config, run.folder / "blending")
        aims = dev.aims(found, run.folder / "blending")
    with stage_cost(run.folder, "dev metrics"):
        metrics = dev.metrics(found)
    parts = replace(parts, calibrations=found.calibrations, ensemble=found.ensemble, aims=aims)
    return parts, metrics


def _manifest(
    run: Run,
    start: DenseStart | None,
    parts: ModelParts,
    num_documents: int,
    metrics: Metrics,
) -> Manifest:
    """Return what the bundle says of itself, but for its files."""
    default = parts.scorers[0]
    if metrics:  # of equally good scorers, the first
        measured = metrics[default][ALL_LABELS]  # no P@5 where there are fewer than 5 labels
        choice = next(name for name in _CHOICE_METRICS if name in measured)
        default = max(parts.scorers, key=lambda name: metrics[name][ALL_LABELS][choice])
    settings, encoder, correction = run.config.settings_used, None, None
    if start is not None and parts.dense is not None:
        source, dense = start.source, parts.dense
        settings["encoder"] = source.name
        correction = dense.linear.correction if dense.linear is not None else None
        encoder = EncoderInfo(source.name, dense.encoder.dim, dense.max_tokens, source.sha256)
    return Manifest(
        label_count=len(parts.catalogue),
        training_document_count=num_documents,
        encoder=encoder,
        scorers=parts.scorers,
        default_scorer=default,
        training=settings,
        data_fingerprint=run.dataset.fingerprint,
        metrics={"dev": metrics} if metrics else {},
        linear_correction=correction,
        calibrations=dict(parts.calibrations),
        ensemble=parts.ensemble,
        longtail_version=version("longtail"),
    )


def _publish(
    run: Run, parts: ModelParts, manifest: Manifest, texts: Sequence[str], registry: Registry
) -> int:
    scratch = run.folder / "encoder"
    shutil.rmtree(scratch, ignore_errors=True)
    return registry.publish(lambda folder: write_parts(folder, parts, manifest, scratch, texts))


def _claim_folder(run: Run, start: DenseStart | None) -> None:
    """Note in the run's folder what is trained there; refuse a folder that holds another run.

    Raises:
        ConfigError: It does.
    """
    settings = run.config.settings_used
    settings.pop("warmup_texts", None)  # chosen when all is done
    content: dict[str, Any] = {
        "config": settings,
        "data_fingerprint": run.dataset.fingerprint,
    }
    if start is not None:
        content |= {
            "encoder_sha256": start.source.sha256,
            "is_bfloat16": start.machine.is_bfloat16,
            "device": start.machine.device,
        }
    claim(run.folder / RUN_NAME, content, "run", "--work")


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
