"""What the dense half of a run would take on this machine, measured on a few steps of it."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from jaxtyping import Int64

from longtail.models.encoders.dual_encoder import encode_all
from longtail.models.names import LINEAR
from longtail.models.parts.model_parts import ModelParts
from longtail.training.configuration.run import TrainingConfig
from longtail.training.configuration.sections import StageConfig
from longtail.training.data.dataset import Dataset
from longtail.training.neural.batching import BatchPlan, LabelSubsets
from longtail.training.neural.document_vectors import inference_copy
from longtail.training.neural.loop import Stages
from longtail.training.neural.model import TrainingTexts
from longtail.training.neural.steps import Step, classifier_step, start_scores
from longtail.training.pipeline.dense import (
    DenseStart,
    find_label_subsets,
    read_training_texts,
    start_dense,
)
from longtail.training.pipeline.dense_stages import make_retrieval_step
from longtail.training.runtime.run_log import OutOfTimeError, progress_path, read_progress

_TRIAL_STEPS = 4  # the first is not counted: memory is found, operations are chosen
_NUM_DOCUMENTS = 512  # that are read for it, where steps don't want more
_NUM_FIRST = 64  # of them: if these show that there is no time, the others are not read
_LINEAR_STEP_S = 0.01  # of the linear scorer; little beside all else


@dataclass(frozen=True, slots=True)
class StageTime:
    """What a neural stage takes.

    Attributes:
        steps: Of all its epochs; 0 where it is left out.
        step_s: Seconds of one.
    """

    steps: int
    step_s: float

    @property
    def seconds(self) -> float:
        """Seconds of the whole stage."""
        return self.steps * self.step_s


@dataclass(frozen=True, slots=True)
class DenseCosts:
    """What the dense half of a run takes.

    Attributes:
        stages: By name: "classifier", "retrieval".
        other_s: Seconds of what doesn't depend on the number of steps: hard negatives, vectors of
            documents, the linear scorer.
    """

    stages: Mapping[str, StageTime]
    other_s: float


def measure_dense_costs(
    config: TrainingConfig,
    corpus: Dataset,
    parts: ModelParts,
    left: Callable[[], float] = lambda: math.inf,
) -> DenseCosts:
    """Take some steps of both stages, as the run would, and throw away what they trained.

    It ends as soon as what is measured takes longer than there is time.

    Args:
        config: Of the run.
        corpus: With a training split.
        parts: The model without an encoder that was trained on it.
        left: Returns the seconds that the dense half may take.
    """
    truth = corpus.split("train").scan().labels
    start = start_dense(config, truth)
    most = max(_NUM_DOCUMENTS, _TRIAL_STEPS * config.retrieval.batch_size)
    rows = np.linspace(0, truth.shape[0] - 1, min(most, truth.shape[0])).astype(np.int64)
    scale = truth.shape[0] / len(rows)
    documents = _texts_of(corpus, rows)
    texts = read_training_texts(start, config, documents, parts.catalogue, truth[rows])
    features = parts.sparse.tfidf.transform(documents)
    num_texts = truth.shape[0] + (
        corpus.split("dev").scan().labels.shape[0] if "dev" in corpus.split_names else 0
    )
    encode_s = _encode_seconds(start, texts, left, num_texts)
    if not config.is_tuned:
        return DenseCosts({}, encode_s)
    begun = time.monotonic()
    subsets = find_label_subsets(config.retrieval, parts.sparse, features, texts.truth)
    hard_s = (time.monotonic() - begun) * scale
    with TemporaryDirectory(prefix="longtail-") as folder:
        stages = _stage_times(start, texts, subsets, config, Path(folder), scale)
    linear_s = 0.0
    if LINEAR in config.scorers:
        linear = config.linear
        linear_s = _LINEAR_STEP_S * truth.nnz * linear.epochs / linear.batch_size
    return DenseCosts(stages, hard_s + encode_s + linear_s)


def _texts_of(corpus: Dataset, rows: Int64[np.ndarray, row]) -> list[str]:
    wanted = set(rows.tolist())
    texts = enumerate(itertools.islice(corpus.split("train").texts(), int(rows[-1]) + 1))
    return [text for row, text in texts if row in wanted]


def _stage_times(
    start: DenseStart,
    texts: TrainingTexts,
    subsets: LabelSubsets,
    config: TrainingConfig,
    folder: Path,
    scale: float,
) -> dict[str, StageTime]:
    """Return what both stages take.

    Args:
        start: Its model is trained.
        texts: Some of the training documents, and all labels.
        subsets: Of these documents.
        config: Of the run.
        folder: For what the stages write.
        scale: Training documents for each of these.
    """
    stages = Stages(texts, config.seed, start.machine, folder)
    steps: dict[str, tuple[StageConfig, Callable[[], Step]]] = {
        "classifier": (
            config.classifier,
            lambda: classifier_step(start.model, texts, start.machine),
        ),
        "retrieval": (
            config.retrieval,
            lambda: make_retrieval_step(start, texts, subsets, config, folder),
        ),
    }
    start_scores(start.model.encoder, texts)
    found = {}
    for name, (stage, make_step) in steps.items():
        if not stage.epochs:
            found[name] = StageTime(0, 0.0)
            continue
        trial = stage.model_copy(update={"epochs": _TRIAL_STEPS, "max_steps": _TRIAL_STEPS})
        stages.train(name, start.model, make_step(), trial)
        points = read_progress(progress_path(folder / name))
        step_s = float(np.median(np.diff([point.seconds for point in points])))
        one_epoch = stage.model_copy(update={"epochs": 1, "max_steps": None})
        plan = BatchPlan.of(texts.documents.lengths, one_epoch, [config.seed])
        steps_of_all = round(plan.num_steps * scale * stage.epochs)
        found[name] = StageTime(min(steps_of_all, stage.max_steps or steps_of_all), step_s)
    return found


def _encode_seconds(
    start: DenseStart, texts: TrainingTexts, left: Callable[[], float], num_texts: int
) -> float:
    """Return what the vectors of so many texts take, measured on some, and on few first."""
    encoder = inference_copy(start.model.encoder, start.machine)
    seconds = 0.0
    for most in (_NUM_FIRST, len(texts.documents)):
        rows = range(0, len(texts.documents), max(1, len(texts.documents) // most))
        begun = time.monotonic()
        encode_all(
            encoder,
            texts.documents.take(rows),
            "document",
            pad_id=texts.pad_id,
            device=start.machine.device,
        )
        seconds = (time.monotonic() - begun) * num_texts / len(rows)
        if seconds > left():
            raise OutOfTimeError
    return seconds
