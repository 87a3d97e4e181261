"""What a step of the linear scorers costs by method, storage and number of labels, as ratios.

    python tests/bench/linear_step.py

Documents are random vectors with one label each, by Zipf's law; the label tree is a random one. A
step is the trainer's own: draw the next pairs, read their vectors, draw negatives, score, weigh,
and change the rows of the labels that were scored. Ratios are to the fewest labels with the same
method and storage, and to uniform negatives with as many labels and the same storage. `softmax`
scores all labels, so it is measured with few of them only. Times are the process's own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from machine import begin
from recording import Table, add_json_option, keep
from scipy.sparse import csr_array

from longtail.models.label_tree.tree import LabelTree, depth_of, one_sided_biases
from longtail.training.linear.trainer import LinearOptions, LinearTrainer
from research.experiments.adversarial.methods import make_method

NUM_COMPONENTS = 16
METHODS = ("uniform", "frequency", "adversarial", "nce", "one_versus_each", "augment_and_reduce")
MAX_LABELS_OF_SOFTMAX = 10_000


@dataclass(frozen=True)
class Bench:
    """A corpus of random documents, and what a step takes of it."""

    num_documents: int
    dim: int
    batch_size: int
    num_negatives: int

    def trainers(self, num_labels: int) -> Iterator[tuple[str, str, LinearTrainer]]:
        """Yield a trainer of every method and storage; each is dropped before the next is made."""
        rng = np.random.default_rng(0)
        weights = 1 / np.arange(1, num_labels + 1)
        labels = np.searchsorted(
            np.cumsum(weights) / weights.sum(), rng.random(self.num_documents)
        ).clip(max=num_labels - 1)
        ones = np.ones(self.num_documents, dtype=np.float32)
        places = (np.arange(self.num_documents), labels)
        truth = csr_array((ones, places), (self.num_documents, num_labels))
        vectors = rng.standard_normal((self.num_documents, self.dim), dtype=np.float32)
        tree = random_tree(num_labels, self.dim, rng)
        methods = METHODS + (("softmax",) if num_labels <= MAX_LABELS_OF_SOFTMAX else ())
        for storage in ("float32", "bfloat16"):
            for name in methods:
                num_negatives = 1 if name == "softmax" else self.num_negatives
                method = make_method(name, vectors, truth, num_negatives=num_negatives, tree=tree)
                options = LinearOptions(
                    batch_size=self.batch_size, storage=storage, exclude=method.exclude
                )
                yield name, storage, LinearTrainer(vectors, truth, method.objective, options)


def random_tree(num_labels: int, dim: int, rng: np.random.Generator) -> LabelTree:
    """Return a tree with random decisions."""
    label_of_leaf = np.full(2 ** depth_of(num_labels), -1, dtype=np.int64)
    label_of_leaf[:num_labels] = rng.permutation(num_labels)
    shape = (len(label_of_leaf) - 1, NUM_COMPONENTS)
    components = rng.standard_normal((NUM_COMPONENTS, dim), dtype=np.float32)
    return LabelTree.from_arrays(
        {
            "mean": np.zeros(dim, dtype=np.float32),
            "components": components / np.float32(dim**0.5),
            "weights": np.float32(0.3) * rng.standard_normal(shape, dtype=np.float32),
            "biases": one_sided_biases((label_of_leaf >= 0).astype(np.int64)),
            "label_of_leaf": label_of_leaf,
        }
    )


def least_ms(trainer: LinearTrainer, rounds: int) -> float:
    """Return the least time of a step, after three that warm up."""
    least = float("inf")
    for number in range(3 + rounds):
        started = time.process_time()
        trainer.step()
        if number >= 3:
            least = min(least, time.process_time() - started)
    return 1000 * least


def main() -> None:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, nargs="+", default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--negatives", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    add_json_option(parser)
    arguments = begin(parser)
    torch.set_num_threads(arguments.threads)
    bench = Bench(arguments.documents, arguments.dim, arguments.batch, arguments.negatives)
    first: dict[tuple[str, str], float] = {}
    table = Table({
        "labels": ",", "storage": "", "method": "", "step, ms": ".2f", "to fewest labels": ".2f",
        "to uniform": ".2f",
    })  # fmt: skip
    for num_labels in arguments.labels:
        uniform = float("nan")
        for name, storage, trainer in bench.trainers(num_labels):
            taken = least_ms(trainer, arguments.rounds)
            if name == "uniform":
                uniform = taken
            fewest = first.setdefault((name, storage), taken)
            table.add(num_labels, storage, name, taken, taken / fewest, taken / uniform)
    keep(arguments.json, {"steps": table})


if __name__ == "__main__":
    main()
