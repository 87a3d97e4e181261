"""What a training step costs by q, w and number of labels: minima of one run, as ratios.

    python tests/bench/sampling_step.py

A step draws negatives, scores them and the positives with a linear scorer, weighs them, and takes
the softmax loss and its gradient, whose rows are sparse. The table has it with the scorer ("step")
and on given scores ("parts": draw, weights, loss, gradient to the scores). The scorer reads the
weights of each label from memory: with many labels they lie outside the processor's caches, which
"step" shows whatever q is. Ratios are to uniform draws with constant weights of as many labels,
and to the same q and w with the fewest labels.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from training.learning_config import LearningConfig
from training.model_sampling import ClusterNegatives
from training.objectives import Material, Objective, make_objective
from training.reduction import label_counts, make_pairs, pairs_at
from training.sampling import Pairs

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


@dataclass(frozen=True)
class Case:
    """One line of the table: its step with and without the scorer."""

    name: tuple[str, str, str]
    step: Callable[[], None]
    parts: Callable[[], None]


@dataclass(frozen=True)
class Bench:
    """A corpus of random documents, and a linear scorer of its labels."""

    num_labels: int
    batch: int
    dim: int

    def cases(self) -> list[Case]:
        """Return all cases for this number of labels."""
        rng = np.random.default_rng(0)
        truth = zipf_labels(self.num_labels, rng)
        numbers = rng.permutation(truth.nnz)[: self.batch]
        vectors = torch.randn(self.batch, self.dim)
        pairs = make_pairs(truth, *pairs_at(truth, numbers), "document", "cpu")
        pairs = Pairs(pairs.documents, pairs.labels, pairs.excluded, vectors)
        weight = nn.Embedding(self.num_labels, self.dim, sparse=True)
        hard = torch.from_numpy(rng.integers(self.num_labels, size=(NUM_DOCUMENTS, NUM_HARD)))
        clusters = ClusterNegatives.of(
            weight.weight.detach(), torch.zeros(self.num_labels), 1, np.random.default_rng(0)
        )
        material = Material(label_counts(truth), "cpu", hard=hard, clusters=clusters)
        made = [
            (group, q["kind"], w, self.objective(q, w, material, is_shared=group == "shared"))
            for group, distributions in (("own", OWN), ("shared", SHARED))
            for q in distributions
            for w in WEIGHTS
        ]
        made.append(
            (
                "own",
                "clusters",
                "importance",
                self.objective({"kind": "clusters"}, "importance", material),
            )
        )
        return [
            Case((group, q, w), step_of(objective, pairs, weight), parts_of(objective, pairs))
            for group, q, w, objective in made
        ]

    def objective(
        self, q: dict[str, object], w: str, material: Material, *, is_shared: bool = False
    ) -> Objective:
        """Make the objective of one case; as many negatives as within-batch sampling has."""
        is_batch = q["kind"] == "within_batch"
        negatives = {
            "q": q,
            "w": w,
            "m": None if is_batch else self.batch - 1,
            "shared": is_shared and not is_batch,
        }
        content = {"negatives": negatives, "loss": {"kind": "softmax"}}
        return make_objective(LearningConfig.model_validate(content), material)


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


def step_of(objective: Objective, pairs: Pairs, weight: nn.Embedding) -> Callable[[], None]:
    """Return a step with the linear scorer."""
    generator = torch.Generator().manual_seed(0)
    documents = pairs.document_vectors()

    def score(labels: Tensor) -> Tensor:
        rows = weight(labels)  # (1 or batch, k, dim)
        if len(rows) == 1:
            return documents @ rows[0].T
        return torch.bmm(rows, documents.unsqueeze(2)).squeeze(2)

    def step() -> None:
        weight.weight.grad = None
        objective(pairs, score, generator).backward()

    return step


def parts_of(objective: Objective, pairs: Pairs) -> Callable[[], None]:
    """Return a step on given scores."""
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(len(pairs.labels), len(pairs.labels), requires_grad=True)

    def step() -> None:
        given.grad = None
        objective(pairs, lambda labels: given[:, : labels.shape[1]], generator).backward()

    return step


def minima(steps: list[Callable[[], None]], rounds: int) -> list[float]:
    """Return the least time of each in milliseconds.

    They take turns, so load hits all alike; and each runs once before it is timed, so that none
    finds the caches as another left them.
    """
    least = [float("inf")] * len(steps)
    for _ in range(rounds):
        for number, step in enumerate(steps):
            step()
            started = time.perf_counter()
            step()
            least[number] = min(least[number], time.perf_counter() - started)
    return [1000 * seconds for seconds in least]


def main() -> None:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, nargs="+", default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    first: dict[tuple[str, str, str], tuple[float, float]] = {}
    ratios = "to uniform | to fewest"
    print(f"| labels | draws | q | w | step ms | {ratios} | parts ms | {ratios} |")
    print("|---|---|---|---|---:|---:|---:|---:|---:|---:|")
    for num_labels in arguments.labels:
        cases = Bench(num_labels, arguments.batch, arguments.dim).cases()
        steps = minima([case.step for case in cases], arguments.rounds)
        parts = minima([case.parts for case in cases], arguments.rounds)
        times = {case.name: x for case, *x in zip(cases, steps, parts, strict=True)}
        for name, (step, part) in times.items():
            base_step, base_part = times[name[0], "uniform", "constant"]
            first_step, first_part = first.setdefault(name, (step, part))
            print(
                f"| {num_labels} | {' | '.join(name)} "
                f"| {step:.2f} | {step / base_step:.2f} | {step / first_step:.2f} "
                f"| {part:.2f} | {part / base_part:.2f} | {part / first_part:.2f} |"
            )


if __name__ == "__main__":
    main()
