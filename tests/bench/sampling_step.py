"""What a training step costs by q, w and number of labels: minima of one run, as ratios.

    export MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=4000000000
    python tests/bench/sampling_step.py
    python tests/bench/sampling_step.py --plot training/results/sampling_step.png

With the two variables glibc keeps the memory of large tensors from step to step; without them it
gives it back, and what a step then takes for pages of memory can be more than all that q decides.

A *step* draws negatives, scores them and the positives with a linear scorer over given document
vectors, weighs them, takes the softmax loss and its gradient, and changes the scorer's rows by
Adagrad. Its *parts* are what q and w decide: draw, weights, loss, gradient to the scores, on given
scores. *Scorer* is the rest of a step alone, with labels that were drawn before: it reads and
changes the weights of each label in memory, which with many labels lie outside the processor's
caches whatever q is. So what grows with the labels in the parts is the drawing; in the scorer, the
memory. Ratios are to uniform draws with constant weights of as many labels, and to the same q and
w with the fewest labels. Times are the process's own.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from machine import begin
from matplotlib.axes import Axes
from recording import Table, add_json_option, keep
from scipy.sparse import csr_array
from torch import Tensor, nn

from longtail.training.configuration.learning import LearningConfig
from longtail.training.evaluation.plots import new_figure, write_figure
from longtail.training.learning.document_distributions import ClusterNegatives
from longtail.training.learning.objectives import Objective, SamplerInputs, Scorer, make_objective
from longtail.training.learning.sampling import Pairs, label_counts, make_pairs, pairs_at
from research.experiments.bow_models import RowAdagrad

NUM_DOCUMENTS, LABELS_EACH, NUM_HARD = 2000, 5, 20
WEIGHTS = ("constant", "importance", "relative", "tail")
OWN = (
    {"kind": "uniform"},
    {"kind": "uniform_subset"},
    {"kind": "frequency", "exponent": 0.75},
    {"kind": "hard"},
)
SHARED = (
    {"kind": "uniform"},
    {"kind": "uniform_subset"},
    {"kind": "frequency", "exponent": 0.75},
    {"kind": "within_batch"},
)
NUM_DRAWS = 32
"""Draws of labels for the scorer alone, so that their rows don't stay in the caches."""
LEAST_TIMED = 0.005
"""Seconds that are timed at once, in as many steps as they hold."""

Name = tuple[str, str, str]
"""Whether each pair has draws of its own, q and w."""


@dataclass(frozen=True)
class Case:
    """One line of the table: its step, and what q and w decide of it."""

    name: Name
    step: Callable[[], None]
    parts: Callable[[], None]


@dataclass(frozen=True)
class Times:
    """Milliseconds of a case with one number of labels."""

    step: float
    scorer: float
    parts: float


@dataclass(frozen=True)
class Bench:
    """A corpus of random documents, and a linear scorer of its labels."""

    num_labels: int
    batch: int
    dim: int

    def cases(self) -> tuple[list[Case], dict[str, Callable[[], None]]]:
        """Return all cases for this number of labels, and the scorer's part of each group."""
        rng = np.random.default_rng(0)
        truth = zipf_labels(self.num_labels, rng)
        numbers = rng.permutation(truth.nnz)[: self.batch]
        vectors = torch.randn(self.batch, self.dim)
        pairs = make_pairs(truth, *pairs_at(truth, numbers), "document", "cpu")
        pairs = Pairs(pairs.documents, pairs.labels, pairs.excluded, vectors)
        scorer = LinearScorer.of(self.num_labels, vectors)
        hard = torch.from_numpy(rng.integers(self.num_labels, size=(NUM_DOCUMENTS, NUM_HARD)))
        clusters = ClusterNegatives.of(
            scorer.weight.weight.detach(), torch.zeros(self.num_labels), 1, np.random.default_rng(0)
        )
        inputs = SamplerInputs(label_counts(truth), "cpu", hard=hard, clusters=clusters)
        made = [
            (group, q["kind"], w, self.objective(q, w, inputs, is_shared=group == "shared"))
            for group, distributions in (("own", OWN), ("shared", SHARED))
            for q in distributions
            for w in WEIGHTS
        ]
        made.append(
            (
                "own",
                "clusters",
                "importance",
                self.objective({"kind": "clusters"}, "importance", inputs),
            )
        )
        cases = [
            Case((group, q, w), step_of(objective, pairs, scorer), parts_of(objective, pairs))
            for group, q, w, objective in made
        ]
        return cases, {
            group: scorer_alone(
                scorer, pairs, torch.randint(self.num_labels, (NUM_DRAWS, rows, self.batch - 1))
            )
            for group, rows in (("own", self.batch), ("shared", 1))
        }

    def objective(
        self, q: dict[str, object], w: str, inputs: SamplerInputs, *, is_shared: bool = False
    ) -> Objective:
        """Make the objective of one case; as many negatives as within-batch sampling has."""
        is_batch = q["kind"] == "within_batch"
        negatives = {
            "distribution": q,
            "weighting": w,
            "num_negatives": None if is_batch else self.batch - 1,
            "shared": is_shared and not is_batch,
        }
        content = {"negatives": negatives, "loss": {"kind": "softmax"}}
        return make_objective(LearningConfig.model_validate(content), inputs)


def zipf_labels(num_labels: int, rng: np.random.Generator) -> csr_array:
    """Return documents with distinct labels, the frequent ones more often."""
    weights = 1 / np.arange(1, num_labels + 1)
    bounds = np.cumsum(weights) / weights.sum()
    rows = [
        np.unique(np.searchsorted(bounds, rng.random(LABELS_EACH))) for _ in range(NUM_DOCUMENTS)
    ]
    indptr = np.cumsum([0, *map(len, rows)])
    data = np.ones(indptr[-1], dtype=np.float32)
    return csr_array((data, np.concatenate(rows), indptr), shape=(NUM_DOCUMENTS, num_labels))


@dataclass(frozen=True)
class LinearScorer:
    """Inner products of label vectors with given document vectors, and their Adagrad."""

    weight: nn.Embedding
    documents: Tensor
    optimizer: RowAdagrad

    @classmethod
    def of(cls, num_labels: int, documents: Tensor) -> LinearScorer:
        weight = nn.Embedding(num_labels, documents.shape[1], sparse=True)
        return cls(weight, documents, RowAdagrad(weight, learning_rate=1e-6))

    def __call__(self, labels: Tensor) -> Tensor:
        rows = self.weight(labels)  # (1 or batch, k, dim)
        if len(rows) == 1:
            return self.documents @ rows[0].T
        return torch.bmm(rows, self.documents.unsqueeze(2)).squeeze(2)


def step_of(objective: Objective, pairs: Pairs, scorer: LinearScorer) -> Callable[[], None]:
    """Return a step with the linear scorer."""
    generator = torch.Generator().manual_seed(0)

    def step() -> None:
        objective(pairs, scorer, generator).backward()
        scorer.optimizer.step()

    return step


def scorer_alone(scorer: LinearScorer, pairs: Pairs, labels: Tensor) -> Callable[[], None]:
    """Return what the scorer has of a step with labels drawn before, others every time."""
    drawn = itertools.cycle(labels)

    def step() -> None:
        positive = scorer(pairs.labels.unsqueeze(1))
        (positive.sum() + scorer(next(drawn)).sum()).backward()
        scorer.optimizer.step()

    return step


def parts_of(objective: Objective, pairs: Pairs) -> Callable[[], None]:
    """Return a step on given scores."""
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(len(pairs.labels), len(pairs.labels), requires_grad=True)
    score: Scorer = lambda labels: given[:, : labels.shape[1]]  # noqa: E731

    def step() -> None:
        given.grad = None
        objective(pairs, score, generator).backward()

    return step


def minima(steps: list[Callable[[], None]], rounds: int) -> list[float]:
    """Return the least time of each in milliseconds.

    They take turns, so load hits all alike; and each runs once before it is timed, so that none
    finds the caches as another left them.
    """
    repeats = [max(1, math.ceil(LEAST_TIMED / time_of(step, 3))) for step in steps]
    least = [float("inf")] * len(steps)
    for _ in range(rounds):
        for number, (step, times) in enumerate(zip(steps, repeats, strict=True)):
            step()
            least[number] = min(least[number], time_of(step, times))
    return [1000 * seconds for seconds in least]


def time_of(step: Callable[[], None], repeats: int) -> float:
    """Return the mean seconds of a step, at least a nanosecond."""
    started = time.process_time()
    for _ in range(repeats):
        step()
    return max(1e-9, (time.process_time() - started) / repeats)


def measured(bench: Bench, rounds: int) -> dict[Name, Times]:
    """Return the times of every case."""
    found: dict[Name, Times] = {}
    cases, scorers = bench.cases()
    for group, scorer in scorers.items():  # apart: the large steps of one leave no memory as it was
        own = [case for case in cases if case.name[0] == group]
        *steps, alone = minima([*(case.step for case in own), scorer], rounds)
        parts = minima([case.parts for case in own], rounds)
        for case, step, part in zip(own, steps, parts, strict=True):
            found[case.name] = Times(step, alone, part)
    return found


def add_rows(
    table: Table, num_labels: int, found: dict[Name, Times], first: dict[Name, Times]
) -> None:
    """Add a row for every case."""
    for name, times in found.items():
        base, fewest = found[name[0], "uniform", "constant"], first[name]
        table.add(
            num_labels, *name,
            times.step, times.step / base.step, times.step / fewest.step,
            times.scorer, times.scorer / fewest.scorer,
            times.parts, times.parts / base.parts, times.parts / fewest.parts,
        )  # fmt: skip


def spread_of(everything: dict[int, dict[Name, Times]]) -> Table:
    """Return how far steps of one number of labels differ, the model-based aside."""
    table = Table({
        "labels": ",", "draws": "", "cheapest step": "", "ms": ".2f", "dearest step": "",
        "its ms": ".2f", "ratio": ".2f",
    })  # fmt: skip
    for num_labels, found in everything.items():
        for group in ("own", "shared"):
            steps = {
                f"{q}, {w}": times.step
                for (each, q, w), times in found.items()
                if each == group and q != "clusters"
            }
            low, high = (choice(steps, key=lambda name: steps[name]) for choice in (min, max))
            ratio = steps[high] / steps[low]
            table.add(num_labels, group, low, steps[low], high, steps[high], ratio)
    return table


def draw(everything: dict[int, dict[Name, Times]], path: Path) -> None:
    """Draw steps, scorer and parts over the number of labels; bands span the weights."""
    figure = new_figure(9.0, 4.0)
    titles = {"own": "draws for each pair", "shared": "draws for the batch"}
    for axes, (group, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        names = dict.fromkeys(q for each, q, _ in next(iter(everything.values())) if each == group)
        for number, q in enumerate(names):
            draw_band(axes, everything, (group, q), f"C{number}")
        sizes = list(everything)
        scorer = [everything[size][group, "uniform", "constant"].scorer for size in sizes]
        axes.plot(sizes, scorer, "k--", label="scorer alone")
        axes.set(xscale="log", xlabel="labels", title=f"{title}: a step (-), its parts (:)")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.axes[0].set_ylabel("milliseconds")
    write_figure(figure, path)


def draw_band(
    axes: Axes, everything: dict[int, dict[Name, Times]], case: tuple[str, str], colour: str
) -> None:
    """Draw the steps and the parts of a q."""
    sizes = list(everything)
    of_weights = [
        [times for name, times in everything[size].items() if name[:2] == case] for size in sizes
    ]
    for part, style, label in (("step", "-", case[1]), ("parts", ":", None)):
        values = [[getattr(times, part) for times in each] for each in of_weights]
        low, high = ([choice(each) for each in values] for choice in (min, max))
        axes.fill_between(sizes, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(sizes, low, style, color=colour, label=label)


def measure_all(arguments: argparse.Namespace) -> Iterable[tuple[int, dict[Name, Times]]]:
    """Yield the times for each number of labels."""
    for num_labels in arguments.labels:
        bench = Bench(num_labels, arguments.batch, arguments.dim)
        yield num_labels, measured(bench, arguments.rounds)


def main() -> None:
    """Measure, print the tables, and draw them if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labels", type=int, nargs="+", default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plot", type=Path, help="a .png or .svg file")
    add_json_option(parser)
    arguments = begin(parser)
    torch.set_num_threads(arguments.threads)
    table = Table({
        "labels": ",", "draws": "", "q": "", "w": "", "step, ms": ".2f", "to uniform": ".2f",
        "to fewest": ".2f", "scorer, ms": ".2f", "scorer to fewest": ".2f", "parts, ms": ".2f",
        "parts to uniform": ".2f", "parts to fewest": ".2f",
    })  # fmt: skip
    everything: dict[int, dict[Name, Times]] = {}
    for num_labels, found in measure_all(arguments):
        everything[num_labels] = found
        add_rows(table, num_labels, found, everything[arguments.labels[0]])
    spread = spread_of(everything)
    keep(arguments.json, {"steps": table, "spread": spread})
    if arguments.plot is not None:
        draw(everything, arguments.plot)


if __name__ == "__main__":
    main()
