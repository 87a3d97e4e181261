"""Training linear scorers xi_y(x) = x·w_y + b_y over frozen document vectors.

Bamler & Mandt 2020, section 5, by Adagrad. A step changes the rows of the labels that it scored
alone, so with sampled negatives it costs O(batch x (1 + negatives) x dim), however many labels
there are. `longtail.training.linear.objective` makes what is minimised.

Everything random in a step is drawn from (seed, step), so a run that was stopped and resumed takes
the same steps as one that was not. On a GPU, sums over a label that occurs more than once in a
batch have no fixed order, unless `torch.use_deterministic_algorithms` asks for one.

"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from safetensors.torch import load_file
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import pad

from longtail.models.errors import ConfigError, DataError
from longtail.models.scorers.linear import LinearModel
from longtail.training.learning.objectives import Objective
from longtail.training.learning.sampling import Exclude, make_pairs, pairs_at, step_generator
from longtail.training.runtime.checkpoints import newest_checkpoint, save_states
from longtail.training.runtime.run_log import ProgressLog, progress_bar

_FIRST_SQUARE = 1e-8
"""Where the sums start. From 0, the first step would be a whole one however small the gradient:
of a gradient of 0, one in the direction of rounding errors."""


@dataclass(frozen=True, slots=True, eq=False)
class AdagradRows:
    """A matrix in training, with the sum of squared gradients of each of its entries.

    Attributes:
        values: The matrix; changed in place.
        squares: The sums.
    """

    values: Float32[Tensor, "row dim"]
    squares: Float32[Tensor, "row dim"]

    @classmethod
    def zeros(cls, shape: tuple[int, int], device: torch.device | str) -> AdagradRows:
        """Start at zero, and the sums at 1e-8, as Bamler & Mandt's published code has it."""
        values = torch.zeros(shape, device=device)
        return cls(values, torch.full_like(values, _FIRST_SQUARE))

    def take(self, rows: Int64[Tensor, taken]) -> Float32[Tensor, "taken dim"]:
        """Return a copy of rows."""
        return self.values.index_select(0, rows)

    def step(
        self,
        rows: Int64[Tensor, changed],
        gradient: Float32[Tensor, "changed dim"],
        learning_rate: float,
    ) -> None:
        """Take a step (Duchi, Hazan & Singer 2011, diagonal form).

        Args:
            rows: What to change; distinct.
            gradient: Gradient of each row.
            learning_rate: rho, the largest change of an entry in the first step.
        """
        squares = self.squares.index_select(0, rows).addcmul_(gradient, gradient)
        change = gradient / squares.sqrt()
        self.squares.index_copy_(0, rows, squares)
        self.values.index_copy_(0, rows, self.take(rows).sub_(change, alpha=learning_rate))


_STATE_NAME = "linear.safetensors"
_CHECKPOINT_EVERY_S = 60.0
_ORDER, _STEP = 1, 2  # what a seed is for: the order of an epoch, or the draws of a step
_ROWS_AT_A_TIME = 2**14  # of document vectors that are looked through


@dataclass(frozen=True, slots=True)
class LinearOptions:
    """How linear scorers are trained.

    Attributes:
        learning_rate: rho of Adagrad.
        batch_size: Pairs a step.
        epochs: Passes over all pairs.
        exclude: Labels that may not be negatives of a pair.
        prior_variance: sigma_0^2 of a Gaussian prior on weights and biases; it pulls, by a share
            batch / (pairs x sigma_0^2), the rows that a step changes, as in the published
            code of Ruiz et al. 2018; None: no prior.
        seed: Seed of the orders and the draws.
        device: "cpu" or "cuda".
    """

    learning_rate: float = 0.01
    batch_size: int = 1000
    epochs: int = 10
    exclude: Exclude = "none"
    prior_variance: float | None = None
    seed: int = 0
    device: str = "cpu"


@runtime_checkable  # the trainer asks by isinstance
class Stateful(Protocol):
    """An objective that learns something itself."""

    def state(self) -> dict[str, Tensor]:
        """Return what changes in training, by name; the tensors themselves, to be written to."""
        ...


class LinearTrainer:
    """Trains linear scorers, step by step.

    Attributes:
        steps_done: Steps taken so far.
        num_steps: Steps of all epochs.
    """

    def __init__(
        self,
        vectors: Float32[np.ndarray, "document dim"],
        truth: Float32[csr_array, "document label"],
        objective: Objective,
        options: LinearOptions,
    ) -> None:
        """Start all weights and biases at zero.

        Args:
            vectors: Document vectors; may be mapped from a file.
            truth: Labels of the documents; every stored entry is a pair.
            objective: What the mean of the pairs' losses is.
            options: How to train.
        """
        assert len(vectors) == truth.shape[0]
        _check(vectors)
        self.steps_done = 0
        self._vectors, self._truth = vectors, truth
        self._objective, self._options = objective, options
        # The bias is the weight of one more entry of every vector, which is 1.
        shape = (truth.shape[1], vectors.shape[1] + 1)
        self._rows = AdagradRows.zeros(shape, options.device)
        self._per_epoch = math.ceil(truth.nnz / options.batch_size)
        self.num_steps = options.epochs * self._per_epoch
        self._order = (-1, np.empty(0, dtype=np.int64))  # an epoch and its order

    def step(self) -> float:
        """Take one step and return the mean loss of its pairs before it."""
        options = self._options
        rng = np.random.default_rng([options.seed, _STEP, self.steps_done])
        generator = step_generator(rng, options.device)
        documents, labels = self._next_pairs()
        pairs = make_pairs(self._truth, documents, labels, options.exclude, options.device)
        vectors = torch.from_numpy(self._vectors[documents]).to(options.device)
        tape = _ScoreTape(self._rows, pad(vectors, (0, 1), value=1.0))
        loss = self._objective(replace(pairs, vectors=vectors), tape.score, generator)
        mean_loss = float(loss.detach())
        if not math.isfinite(mean_loss):
            raise ConfigError(
                f"linear scorers: the loss is {mean_loss} after {self.steps_done} steps; lower "
                f"learning_rate, which is {options.learning_rate}"
            )
        # The sum over pairs, as Adagrad's sums start at what is small for one pair.
        (len(labels) * loss).backward()  # type: ignore[no-untyped-call]
        changed, gradient = tape.gradient()
        if options.prior_variance is not None:
            share = len(labels) / (self._truth.nnz * options.prior_variance)
            gradient.add_(self._rows.take(changed), alpha=share)
        self._rows.step(changed, gradient, options.learning_rate)
        self.steps_done += 1
        return mean_loss

    def _next_pairs(self) -> tuple[Int64[np.ndarray, batch], Int64[np.ndarray, batch]]:
        epoch, position = divmod(self.steps_done, self._per_epoch)
        if self._order[0] != epoch:
            rng = np.random.default_rng([self._options.seed, _ORDER, epoch])
            self._order = (epoch, rng.permutation(self._truth.nnz))
        size = self._options.batch_size
        return pairs_at(self._truth, self._order[1][position * size :][:size])

    def model(self) -> LinearModel:
        """Return a copy of the scorers as they are now."""
        values = self._rows.values.cpu().numpy()
        return LinearModel(
            weight=values[:, :-1].copy(),
            bias=values[:, -1].copy(),
            labels=np.arange(len(values), dtype=np.int64),
        )

    def save(self, folder: Path) -> None:
        """Write a checkpoint (see `longtail.training.runtime.checkpoints.save_states`)."""
        is_done = self.steps_done >= self.num_steps
        save_states(folder, self.steps_done, {_STATE_NAME: self._state()}, is_done=is_done)

    def load(self, folder: Path) -> None:
        """Go on from the newest checkpoint, if there is one.

        It must be of the same documents, objective and options, but for the epochs; the caller
        sees to that.
        """
        newest = newest_checkpoint(folder)
        if newest is None:
            return
        state, saved = self._state(), load_file(newest / _STATE_NAME)
        kinds = [{k: (x.dtype, x.shape) for k, x in each.items()} for each in (state, saved)]
        if kinds[0] != kinds[1]:
            raise ConfigError(
                f"checkpoint {newest}: holds {kinds[1]}, expected {kinds[0]}; it is of another "
                "training: take another folder"
            )
        for name, tensor in state.items():
            tensor.copy_(saved[name])
        self.steps_done = int(newest.name)

    def _state(self) -> dict[str, Tensor]:
        own = {"values": self._rows.values, "squares": self._rows.squares}
        others = self._objective.state() if isinstance(self._objective, Stateful) else {}
        return own | others


def train_linear(
    vectors: Float32[np.ndarray, "document dim"],
    truth: Float32[csr_array, "document label"],
    objective: Objective,
    options: LinearOptions,
    folder: Path | None = None,
) -> LinearModel:
    """Train linear scorers to the end, with progress, and return them.

    Args:
        vectors: Document vectors.
        truth: Labels of the documents.
        objective: What is minimised.
        options: How.
        folder: For checkpoints, one a minute; resumes from the newest if it has one.
    """
    trainer = LinearTrainer(vectors, truth, objective, options)
    if folder is not None:
        trainer.load(folder)
    last_checkpoint = time.monotonic()
    total, done = trainer.num_steps, trainer.steps_done
    with (
        progress_bar(total=total, initial=done, desc="linear", unit="step") as bar,
        ProgressLog(folder, done, total) if folder is not None else nullcontext() as log,
    ):
        while trainer.steps_done < total:
            loss = trainer.step()
            bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
            bar.update()
            if log is not None:
                log.note(trainer.steps_done, loss, options.learning_rate)
            is_due = time.monotonic() - last_checkpoint >= _CHECKPOINT_EVERY_S
            if folder is not None and (is_due or trainer.steps_done == total):
                trainer.save(folder)
                last_checkpoint = time.monotonic()
    return trainer.model()


class _ScoreTape:
    """Scores labels, and turns the gradients to the scores into those of the scored rows."""

    def __init__(self, rows: AdagradRows, vectors: Float32[Tensor, "batch dim"]) -> None:
        self._rows, self._vectors = rows, vectors
        self._scored: list[tuple[Tensor, Tensor]] = []

    def score(self, labels: Int64[Tensor, "#batch k"]) -> Float[Tensor, "batch k"]:
        """Score labels (see `longtail.training.learning.objectives.Scorer`)."""
        rows = self._rows.take(labels.flatten())
        if len(labels) == 1:
            scores = self._vectors @ rows.T
        else:
            # A product and a sum: on a CPU four times as fast as a batched matrix product.
            products = rows.view(*labels.shape, -1).mul_(self._vectors.unsqueeze(1))
            scores = products.sum(dim=2)
        self._scored.append((labels, scores.requires_grad_()))
        return scores

    def gradient(self) -> tuple[Int64[Tensor, changed], Float32[Tensor, "changed dim"]]:
        """Return the distinct labels that were scored, and the gradient of each one's row."""
        labels = torch.cat([labels.flatten() for labels, _ in self._scored])
        parts = torch.cat([self._row_gradients(*each) for each in self._scored])
        distinct, places = torch.unique(labels, return_inverse=True)
        sums = parts.new_zeros(len(distinct), parts.shape[1])
        return distinct, sums.index_add_(0, places, parts)

    def _row_gradients(
        self, labels: Int64[Tensor, "#batch k"], scores: Float[Tensor, "batch k"]
    ) -> Float32[Tensor, "scored dim"]:
        assert scores.grad is not None
        if len(labels) == 1:
            return scores.grad.T @ self._vectors
        return (scores.grad.unsqueeze(2) * self._vectors.unsqueeze(1)).flatten(0, 1)


def _check(vectors: Float32[np.ndarray, "document dim"]) -> None:
    for start in range(0, len(vectors), _ROWS_AT_A_TIME):
        is_finite = np.isfinite(vectors[start : start + _ROWS_AT_A_TIME]).all(axis=1)
        if not is_finite.all():
            raise DataError(
                f"linear scorers: the vector of document {start + int(is_finite.argmin())} is not "
                "finite; fix it or leave the document out"
            )
