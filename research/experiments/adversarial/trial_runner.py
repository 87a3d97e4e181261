"""One trial of the experiment: what is trained, timed and measured."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from longtail.models.label_tree.tree import LabelTree
from longtail.models.scorers.linear import LinearModel
from longtail.training.label_tree.fit import FittedTree, fit_tree
from longtail.training.linear.trainer import LinearOptions, LinearTrainer
from research.experiments.adversarial.corrections import Correction, TreeCorrection
from research.experiments.adversarial.measures import LinearMetrics, measure_linear
from research.experiments.adversarial.methods import WITH_TREE, Method, MethodName, make_method
from research.experiments.adversarial.tasks import EvaluationSet, LearningTask
from research.experiments.adversarial.tuning import METHODS, Candidate
from research.experiments.trials import Values

TREE, TRUE = "tree", "true"
"""Settings beside those of the candidates: the tree alone, and p_D where it is known."""
SETTINGS = (TREE, *METHODS)
FIGURES = ("steps", "cpu_s", "wall_s", "log_likelihood", "accuracy")
"""Figures of a point of a curve."""
Criterion = Literal["accuracy", "log_likelihood"]
CRITERIA: tuple[Criterion, ...] = get_args(Criterion)
"""What a method is tuned by: the candidates that are best at the one may be bad at the other."""
EvaluationName = Literal["tuning", "measured"]
_MAX_SCORES = 2**24  # held at a time when a model is measured
_WARM_UP_DOCUMENTS = 64


@dataclass(frozen=True, slots=True)
class AdversarialPlan:
    """What every trial has in common.

    Attributes:
        num_steps: Steps of methods that draw from the tree; others take more or fewer (`steps_of`).
        num_points: Points of a curve after its start; each after twice as many steps as the one
            before.
        batch_size: Pairs a step.
        num_negatives: m, a pair; of softmax all.
        num_components: k of the tree.
        tree_regulariser: lambda_n; None: by cross-validation, whose time isn't counted, as that of
            tuning isn't.
        num_rounds: Turns of the search for rate and penalty; 0: where the search would start.
        max_softmax_labels: C up to which softmax is trained.
        dim: Dimension of the document vectors of a corpus.
        num_judged: Documents to tune on, and to measure on.
    """

    num_steps: int = 2000
    num_points: int = 10
    batch_size: int = 1000
    num_negatives: int = 1
    num_components: int = 16
    tree_regulariser: float | None = None
    num_rounds: int = 1
    max_softmax_labels: int = 2000
    dim: int = 128
    num_judged: int = 1500

    def steps_of(self, method: MethodName) -> int:
        """Return the steps of a method: more of the cheap ones, so that all take a similar time.

        The paper's Figure 1 gives all methods the same hours. Without the tree there is its fit to
        make up for, and a step is cheaper; one of softmax costs far more, and its gradient has
        hardly any noise.
        """
        if method == "softmax":
            return max(1, self.num_steps // 4)
        return self.num_steps * (1 if method in WITH_TREE else 2)


class Stopwatch:
    """Adds up the seconds of what is done under it.

    Attributes:
        wall_s: By the clock.
        cpu_s: CPU seconds of all threads of the process.
    """

    def __init__(self) -> None:
        """Start at zero."""
        self.wall_s = self.cpu_s = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time inside."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall_s += time.perf_counter() - wall
        self.cpu_s += time.process_time() - cpu


@dataclass(slots=True)
class TrialRunner:
    """A task with its tree, which is fitted when it is first needed.

    Attributes:
        task: What is learned.
        plan: How.
        device: Where.
        tree_regulariser: lambda_n, once it is known.
    """

    task: LearningTask
    plan: AdversarialPlan
    device: str
    tree_regulariser: float | None = None
    _tree: LabelTree | None = None
    _log_noise: dict[EvaluationName, Float32[Tensor, "document label"]] = field(
        default_factory=dict
    )

    def run_tree(self) -> Values:
        """Choose lambda_n, fit the tree with it, and return its figures and what it took."""
        self.tree_regulariser = self.plan.tree_regulariser
        if self.tree_regulariser is None:
            self.tree_regulariser = self._fit().regulariser
        self._warm_up()
        watch = Stopwatch()
        with watch.running():
            self._tree = self._fit().tree
        measured = self._measure(self._zeros(), "measured", TreeCorrection(self._tree))
        return {
            "regulariser": self.tree_regulariser,
            "cpu_s": watch.cpu_s,
            "wall_s": watch.wall_s,
            "log_likelihood": measured.log_likelihood,
            "accuracy": measured.accuracy,
        }

    def run_true(self) -> Values:
        """Return the figures of p_D itself."""
        assert self.task.true is not None
        return {
            "log_likelihood": self.task.true.log_likelihood,
            "accuracy": self.task.true.accuracy,
        }

    def run_candidate(self, candidate: Candidate, seed: int) -> Values:
        """Train, and return the curve, and the figures of its end on the tuning documents."""
        if candidate.method in WITH_TREE and self._tree is None:
            self._tree = self._fit().tree
        self._warm_up()
        watch = Stopwatch()
        with watch.running():
            method, trainer = self._start(candidate, seed)
        values: Values = {}
        points = curve_points(self.plan.steps_of(candidate.method), self.plan.num_points)
        for number, num_steps in enumerate(points):
            with watch.running():
                while trainer.steps_done < num_steps:
                    trainer.step()
            measured = self._measure(trainer.model(), "measured", method.correction)
            figures = (
                float(num_steps),
                watch.cpu_s,
                watch.wall_s,
                measured.log_likelihood,
                measured.accuracy,
            )
            values |= {name_at(n, number): x for n, x in zip(FIGURES, figures, strict=True)}
        at_end = self._measure(trainer.model(), "tuning", method.correction)
        return values | {tuning_name(each): getattr(at_end, each) for each in CRITERIA}

    def _start(self, candidate: Candidate, seed: int) -> tuple[Method, LinearTrainer]:
        task, plan = self.task, self.plan
        method = make_method(
            candidate.method,
            task.vectors,
            task.truth,
            num_negatives=1 if candidate.method == "softmax" else plan.num_negatives,
            regulariser=candidate.regulariser,
            tree=self._tree,
            device=self.device,
        )
        options = LinearOptions(
            learning_rate=candidate.learning_rate,
            batch_size=plan.batch_size,
            epochs=math.ceil(plan.steps_of(candidate.method) * plan.batch_size / task.truth.nnz),
            exclude=method.exclude,
            prior_variance=candidate.prior_variance,
            seed=seed,
            device=self.device,
        )
        return method, LinearTrainer(task.vectors, task.truth, method.objective, options)

    def _warm_up(self) -> None:
        """Fit and train a little, so that loading and compiling code is counted for no method."""
        truth = self.task.truth[:_WARM_UP_DOCUMENTS]
        truth = truth[:, np.unique(truth.indices)]
        vectors = self.task.vectors[:_WARM_UP_DOCUMENTS]
        tree = fit_tree(vectors, truth, num_components=1, regulariser=1.0).tree
        method = make_method("adversarial", vectors, truth, tree=tree, device=self.device)
        options = LinearOptions(batch_size=len(vectors), device=self.device)
        LinearTrainer(vectors, truth, method.objective, options).step()

    def _fit(self) -> FittedTree:
        return fit_tree(
            self.task.vectors,
            self.task.truth,
            num_components=min(self.plan.num_components, self.task.vectors.shape[1]),
            regulariser=self.tree_regulariser,
        )

    def _zeros(self) -> LinearModel:
        num_labels, dim = self.task.truth.shape[1], self.task.vectors.shape[1]
        return LinearModel(
            weight=np.zeros((num_labels, dim), dtype=np.float32),
            bias=np.zeros(num_labels, dtype=np.float32),
            labels=np.arange(num_labels, dtype=np.int64),
        )

    def _measure(
        self, model: LinearModel, name: EvaluationName, correction: Correction | None
    ) -> LinearMetrics:
        documents: EvaluationSet = getattr(self.task, name)
        if not isinstance(correction, TreeCorrection):
            return measure_linear(
                model, documents.vectors, documents.truth, correction, self.device
            )
        # log p_n of all labels costs more than their scores, so it is computed once.
        if name not in self._log_noise:
            vectors = torch.from_numpy(documents.vectors).to(self.device)
            self._log_noise[name] = correction.log_probs(vectors)
        return measure_with(model, documents, self._log_noise[name], self.device)


def measure_with(
    model: LinearModel,
    documents: EvaluationSet,
    log_noise: Float32[Tensor, "document label"],
    device: str,
) -> LinearMetrics:
    """Measure scores (see `measures.measure_linear`) with a correction that is known already.

    Args:
        model: With a row for every label.
        documents: What to measure on; every document has a label.
        log_noise: log p_n of its documents.
        device: Where to compute, and where `log_noise` lies.
    """
    total = num_right = 0.0
    num_documents = len(documents.vectors)
    num_parts = min(num_documents, num_documents * len(model.bias) // _MAX_SCORES + 1)
    for rows in np.array_split(np.arange(num_documents), num_parts):
        truth, known = documents.truth[rows], PartCorrection(log_noise[rows])
        measured = measure_linear(model, documents.vectors[rows], truth, known, device)
        total += measured.log_likelihood * truth.nnz
        num_right += measured.accuracy * len(rows)
    return LinearMetrics(total / documents.truth.nnz, num_right / num_documents)


@dataclass(frozen=True, slots=True)
class PartCorrection:
    """log p_n of the documents that are asked for next."""

    known: Float32[Tensor, "batch label"]

    def log_probs(self, _: Float32[Tensor, "batch dim"]) -> Float32[Tensor, "batch label"]:
        """Return it."""
        return self.known


def curve_points(num_steps: int, num_points: int) -> list[int]:
    """Return after how many steps a curve has points: 0, then doubling up to the last."""
    points = {-(-num_steps // 2**number) for number in range(num_points)}
    return [0, *sorted(points)]


def name_at(figure: str, number: int) -> str:
    """Return the name of a point's figure."""
    return f"{figure} {number}"


def tuning_name(criterion: Criterion) -> str:
    """Return the name of a figure of a candidate's end on the tuning documents."""
    return f"tuning {criterion}"
