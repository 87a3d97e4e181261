"""The stages of neural training: batches, steps, rates, checkpoints, measurements, progress.

Everything random in a step is drawn from (seed, stage, step), so a run that was killed and
resumed takes the same steps as one that was not.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Never

import numpy as np
import torch
from jaxtyping import Int64
from torch import nn
from tqdm import tqdm

from longtail.training.configuration.sections import StageConfig
from longtail.training.neural.batching import BatchPlan
from longtail.training.neural.early_stopping import DevMetric, EarlyStopping
from longtail.training.neural.gradient_cache import encoding_in_parts
from longtail.training.neural.layers import begin_training
from longtail.training.neural.model import DeplModel, TrainingTexts
from longtail.training.neural.optimizer import make_optimizer, set_rates
from longtail.training.neural.steps import Step
from longtail.training.runtime.checkpoints import (
    flat_state,
    is_done,
    load_best,
    load_checkpoint,
    load_notes,
    restore_state,
    save_checkpoint,
)
from longtail.training.runtime.machine import Machine
from longtail.training.runtime.run_log import DevPoint, ProgressLog, write_dev_points
from longtail.training.runtime.tensorboard import EventLog

logger = logging.getLogger(__name__)
_LOG_EVERY_S = 30.0
_CHECKPOINT_EVERY_S = 60.0
_STEP = 2  # what the seed of a stage is for, beside the order of an epoch: the draws of a step


@dataclass(frozen=True, slots=True)
class Stages:
    """Trains the stages of one run, one after the other.

    Attributes:
        texts: What they read.
        seed: Of the run.
        machine: Where to compute. Of several processes the first one alone writes.
        folder: Of the run; each stage keeps its checkpoints in a folder of its name there.
        events: Folder for TensorBoard; None: it gets nothing.
    """

    texts: TrainingTexts
    seed: int
    machine: Machine
    folder: Path
    events: Path | None = None

    def train(
        self,
        name: str,
        model: DeplModel,
        step: Step,
        config: StageConfig,
        dev_metric: DevMetric | None = None,
    ) -> None:
        """Train one stage to its end, from its newest checkpoint if it has one.

        Args:
            name: Of the stage; seeds its randomness and stands in the progress.
            model: Trained in place, on the machine's device.
            step: The loss of a batch.
            config: Epochs, batch size and rates.
            dev_metric: Measures the model, for early stopping.
        """
        seed = [self.seed, int.from_bytes(name.encode()[:4], "big")]
        lengths, folder = self.texts.documents.lengths, self.folder / name
        processes = self.machine.processes
        if processes.from_first(lambda: is_done(folder)):
            if processes.is_first:
                load_checkpoint(folder, model)
            processes.copy_from_first(model.state_dict().values())
            return
        stopping = None
        if config.early_stopping is not None and dev_metric is not None:
            fitted = config.early_stopping.fitted_to(self.texts.truth.shape[1])
            stopping = EarlyStopping(fitted, dev_metric, len(lengths))
        stage = _Stage(
            name=name,
            model=model,
            step=step,
            config=config,
            plan=BatchPlan.of(lengths, config, seed),
            seed=seed,
            machine=self.machine,
            folder=folder,
            optimizer=make_optimizer(model, config),
            stopping=stopping,
        )
        done = stage.resume()
        with encoding_in_parts(model, self.machine, config.accumulate):
            stage.train(done, self.events)


@dataclass(frozen=True, slots=True)
class _Stage:
    """One stage while it is trained."""

    name: str
    model: DeplModel
    step: Step
    config: StageConfig
    plan: BatchPlan
    seed: list[int]
    machine: Machine
    folder: Path
    optimizer: torch.optim.Optimizer
    stopping: EarlyStopping | None

    def resume(self) -> int:
        """Take up the newest checkpoint, if there is one, and return its step."""
        processes, notes, best = self.machine.processes, {}, None
        if processes.is_first:
            load_checkpoint(self.folder, self.model, self.optimizer)
            notes, best = load_notes(self.folder), load_best(self.folder)
        notes = processes.from_first(lambda: notes)
        processes.copy_from_first(self.model.state_dict().values())
        state = processes.tensors_from_first(lambda: flat_state(self.optimizer))
        if not processes.is_first:
            restore_state(self.optimizer, state)
        best = processes.tensors_from_first(lambda: best or {}) or None
        if self.stopping is not None:
            self.stopping.restore([DevPoint(**each) for each in notes.get("dev", [])], best)
        return int(notes.get("step", 0))

    def train(self, done: int, events: Path | None) -> None:
        """Take the steps that are left, and write the weights that are to be kept."""
        with ExitStack() as stack:
            report = None
            if self.machine.processes.is_first:
                report = _Report(self.name, self.plan, done, self.folder, events)
                stack.enter_context(report)
            last = self._take_steps(done, report)
        if self.stopping is not None and self.stopping.best is not None:
            self.model.load_state_dict(self.stopping.best)
        if self.machine.processes.is_first:
            save_checkpoint(self.folder, last, self.model, None, notes=self._notes())

    def _take_steps(self, done: int, report: _Report | None) -> int:
        """Return the number of the last step."""
        total, seen, clock = self.plan.num_steps, self.plan.num_seen(done), _Clock()
        for number, rows in enumerate(self.plan.batches(done), done):
            set_rates(self.optimizer, self.config, number, total)
            loss = _train_step(self, rows, [*self.seed, _STEP, number])
            before, seen, taken = seen, seen + len(rows), number + 1
            if report is not None:
                report.note(taken, loss, len(rows), self.optimizer)
            self._measure(taken, before, seen, report)
            if self._is_over():
                return taken
            if report is not None and clock.is_checkpoint_due() and taken < total:
                self._save(taken)
        return total

    def _measure(self, step: int, before: int, seen: int, report: _Report | None) -> None:
        """Measure the model on dev after a step, if it is time to."""
        stopping, is_last = self.stopping, step == self.plan.num_steps
        if stopping is None or not stopping.is_due(before, seen, is_last=is_last):
            return
        value = self.machine.processes.from_first(stopping.dev_metric)
        stopping.note(step, seen, value, self.model)
        if report is not None:
            report.note_dev(stopping.points)

    def _is_over(self) -> bool:
        return self.stopping is not None and self.stopping.is_over

    def _save(self, step: int) -> None:
        best = None if self.stopping is None else self.stopping.best
        save_checkpoint(
            self.folder, step, self.model, self.optimizer, best=best, notes=self._notes()
        )

    def _notes(self) -> Mapping[str, Any]:
        if self.stopping is None:
            return {}
        return {"dev": [asdict(point) for point in self.stopping.points]}


def _train_step(stage: _Stage, rows: Int64[np.ndarray, batch], seed: list[int]) -> float:
    """Take one step and return its loss; dropout and negatives follow from the seed alone."""
    model, optimizer = stage.model, stage.optimizer
    rng = np.random.default_rng(seed)
    begin_training(model, dropout=stage.config.dropout)
    optimizer.zero_grad(set_to_none=True)
    with stage.machine.forked_random(int(rng.integers(2**63))):
        with stage.machine.autocast():
            loss = stage.step(rows, rng)
        loss.backward()  # type: ignore[no-untyped-call]
    encoder = {id(each) for each in model.encoding_parameters()}
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    stage.machine.processes.sum_gradients(
        [each for each in trained if id(each) in encoder],
        [each for each in trained if id(each) not in encoder],
    )
    nn.utils.clip_grad_norm_(trained, stage.config.max_gradient_norm)
    optimizer.step()
    return float(loss.detach())


class _Report:
    """What a stage tells of itself: progress bar, files, log lines."""

    def __init__(
        self, name: str, plan: BatchPlan, done: int, folder: Path, events: Path | None
    ) -> None:
        self._name = name
        self._total = plan.num_steps
        self._folder = folder
        self._bar: tqdm[Never] = tqdm(
            total=plan.num_documents,
            initial=plan.num_seen(done),
            desc=name,
            unit="doc",
            mininterval=1.0,
        )
        self._log = ProgressLog(folder, done, self._total)
        self._events = EventLog(events, name, done)
        self._last_line = time.monotonic()

    def __enter__(self) -> _Report:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
        self._log.__exit__()
        self._events.close()

    def note(
        self, step: int, loss: float, num_documents: int, optimizer: torch.optim.Optimizer
    ) -> None:
        self._bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
        self._bar.update(num_documents)
        rate = self._bar.format_dict["rate"] or 0.0
        if self._log.note(step, loss, optimizer.param_groups[0]["lr"]):
            self._events.note(step, loss, optimizer, rate)
        now = time.monotonic()
        if now - self._last_line >= _LOG_EVERY_S:
            self._last_line = now
            gpu_gib = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0
            logger.info(
                "%s step %d/%d loss %.4f docs_per_s %.1f gpu_gib %.1f",
                self._name, step, self._total, loss, rate, gpu_gib,
            )  # fmt: skip

    def note_dev(self, points: list[DevPoint]) -> None:
        write_dev_points(self._folder, points)
        point = points[-1]
        self._events.note_dev(point)
        logger.info("%s step %d dev %s %.4f", self._name, point.step, point.metric, point.value)


@dataclass(slots=True)
class _Clock:
    """Says when the next checkpoint is due."""

    last: float = field(default_factory=time.monotonic)

    def is_checkpoint_due(self) -> bool:
        now = time.monotonic()
        if now - self.last < _CHECKPOINT_EVERY_S:
            return False
        self.last = now
        return True
