"""The stages of neural training: batches, steps, rates, checkpoints, progress.

Everything random in a step is drawn from (seed, stage, step), so a run that was killed and
resumed takes the same steps as one that was not.

A step encodes its texts all at once, part by part, or shared out among processes. Parts change only
the dropout's draws and the last bits: what the encoder computed of a part is forgotten, and
computed again when its gradient is (Gao et al. 2021, GradCache). So a loss over the whole batch has
its whole gradient, even one that does not decompose over documents, labels are encoded once a step,
and memory is that of one part.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from longtail.models.encoders.dual_encoder import Role
from longtail.models.encoders.tokens import TokenBatch
from longtail.training.configuration.sections import StageConfig
from longtail.training.neural.batching import BatchPlan
from longtail.training.neural.model import (
    DeplModel,
    TrainingTexts,
    begin_training,
    make_optimizer,
    set_rates,
)
from longtail.training.neural.steps import Step
from longtail.training.runtime.checkpoints import (
    flat_state,
    is_done,
    load_checkpoint,
    restore_state,
    save_checkpoint,
)
from longtail.training.runtime.distributed import Machine
from longtail.training.runtime.run_log import ProgressLog, progress_bar

Encode = Callable[[TokenBatch, Role], Tensor]


@contextmanager
def encoding_in_parts(model: DeplModel, machine: Machine, num_parts: int) -> Iterator[None]:
    """Let the steps of a model encode in parts inside.

    Args:
        model: Its `encode` is what steps call.
        machine: Its processes share a batch.
        num_parts: Parts of each process's share.
    """
    encode: Encode = model.encoder.__call__  # a module would become a part of the model
    if num_parts > 1 or machine.processes.count > 1:
        encode = _Parts(encode, model.encoder.dim, machine, num_parts)
    model.encode_by = encode
    try:
        yield
    finally:
        model.encode_by = None


@dataclass(frozen=True, slots=True)
class _Parts:
    """Encodes the part of a batch that is this process's, and gathers those of all."""

    encode: Encode
    dim: int
    machine: Machine
    num_parts: int

    def __call__(self, batch: TokenBatch, role: Role) -> Float[Tensor, "batch dim"]:
        # From the generator that follows from the step: all processes draw the same.
        seed = int(torch.randint(2**62, ()))
        processes, device = self.machine.processes, self.machine.device
        num_parts = processes.count * self.num_parts
        ends = [len(batch) * number // num_parts for number in range(num_parts + 1)]
        vectors = [torch.empty(0, self.dim, device=device)]
        for number in range(processes.rank * self.num_parts, (processes.rank + 1) * self.num_parts):
            start, end = ends[number : number + 2]
            if end > start:
                vectors.append(self._encode_part(batch.part(start, end), role, seed + number))
        sizes = np.diff(ends[:: self.num_parts]).tolist()
        return processes.gathered(torch.cat(vectors), sizes)

    def _encode_part(self, part: TokenBatch, role: Role, seed: int) -> Float[Tensor, "part dim"]:
        def encode(part: TokenBatch) -> Tensor:
            with self.machine.forked_random(seed):
                return self.encode(part, role).float()

        if self.num_parts == 1:
            return encode(part)
        return cast(Tensor, checkpoint(encode, part, use_reentrant=False, preserve_rng_state=False))


logger = logging.getLogger(__name__)
_LOG_EVERY_S = 30.0
_CHECKPOINT_EVERY_S = 60.0
_MAX_GRADIENT_NORM = 1.0
_STEP = 2  # what the seed of a stage is for, beside the order of an epoch: the draws of a step


@dataclass(frozen=True, slots=True)
class Stages:
    """Trains the stages of one run, one after the other.

    Attributes:
        texts: What they read.
        seed: The run's seed.
        machine: Where to compute. Of several processes the first one alone writes.
        folder: The run's folder; each stage keeps its checkpoints in a folder of its name there.
    """

    texts: TrainingTexts
    seed: int
    machine: Machine
    folder: Path

    def train(self, name: str, model: DeplModel, step: Step, config: StageConfig) -> None:
        """Train one stage to its end, from its newest checkpoint if it has one.

        Args:
            name: The stage's name; it seeds its randomness and is shown in the progress.
            model: Trained in place, on the machine's device.
            step: The loss of a batch.
            config: Epochs, batch size and rates.
        """
        seed = [self.seed, int.from_bytes(name.encode()[:4], "big")]
        lengths, folder = self.texts.documents.lengths, self.folder / name
        processes = self.machine.processes
        if processes.from_first(lambda: is_done(folder)):
            if processes.is_first:
                load_checkpoint(folder, model)
            processes.copy_from_first(model.state_dict().values())
            return
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
        )
        done = stage.resume()
        with encoding_in_parts(model, self.machine, config.accumulate):
            stage.train(done)


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

    def resume(self) -> int:
        """Take up the newest checkpoint, if there is one, and return its step."""
        processes, done = self.machine.processes, 0
        if processes.is_first:
            done = load_checkpoint(self.folder, self.model, self.optimizer)
        done = processes.from_first(lambda: done)
        processes.copy_from_first(self.model.state_dict().values())
        state = processes.tensors_from_first(lambda: flat_state(self.optimizer))
        if not processes.is_first:
            restore_state(self.optimizer, state)
        return done

    def train(self, done: int) -> None:
        """Take the steps that are left, and write the weights."""
        with ExitStack() as stack:
            report = None
            if self.machine.processes.is_first:
                report = _Report(self.name, self.plan, done, self.folder)
                stack.enter_context(report)
            self._take_steps(done, report)
        if self.machine.processes.is_first:
            save_checkpoint(self.folder, self.plan.num_steps, self.model, None)

    def _take_steps(self, done: int, report: _Report | None) -> None:
        total, clock = self.plan.num_steps, _Clock()
        for number, rows in enumerate(self.plan.batches(done), done):
            set_rates(self.optimizer, number, total)
            loss = _train_step(self, rows, [*self.seed, _STEP, number])
            taken = number + 1
            if report is not None:
                report.note(taken, loss, len(rows), self.optimizer)
            if report is not None and clock.is_checkpoint_due() and taken < total:
                save_checkpoint(self.folder, taken, self.model, self.optimizer)


def _train_step(stage: _Stage, rows: Int64[np.ndarray, batch], seed: list[int]) -> float:
    """Take one step and return its loss; negatives follow from the seed alone."""
    model, optimizer = stage.model, stage.optimizer
    rng = np.random.default_rng(seed)
    begin_training(model)
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
    nn.utils.clip_grad_norm_(trained, _MAX_GRADIENT_NORM)
    optimizer.step()
    return float(loss.detach())


class _Report:
    """What a stage tells of itself: progress bar, files, log lines."""

    def __init__(self, name: str, plan: BatchPlan, done: int, folder: Path) -> None:
        self._name = name
        self._total = plan.num_steps
        self._folder = folder
        seen, total = plan.num_seen(done), plan.num_documents
        self._bar = progress_bar(total=total, initial=seen, desc=name, unit="doc")
        self._num_documents, self._began = 0, time.monotonic()
        self._log = ProgressLog(folder, done, self._total)
        self._last_line = time.monotonic()

    def __enter__(self) -> _Report:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
        self._log.__exit__()

    def note(
        self, step: int, loss: float, num_documents: int, optimizer: torch.optim.Optimizer
    ) -> None:
        self._bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
        self._bar.update(num_documents)
        self._num_documents += num_documents
        now = time.monotonic()
        rate = self._num_documents / max(now - self._began, 1e-9)
        self._log.note(step, loss, optimizer.param_groups[0]["lr"])
        if now - self._last_line >= _LOG_EVERY_S:
            self._last_line = now
            gpu_gib = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0
            logger.info(
                "%s step %d/%d loss %.4f docs_per_s %.1f gpu_gib %.1f",
                self._name, step, self._total, loss, rate, gpu_gib,
            )  # fmt: skip


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
