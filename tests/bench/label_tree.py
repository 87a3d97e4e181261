"""The label tree: time and likelihood of the fit, draws a second, time of the best labels.

    LONGTAIL_DATA=<folder with eurlex57k and library-keywords> python tests/bench/label_tree.py \
        --plot label_tree.png

Document vectors are made here: a truncated SVD (128 dimensions) of tf-idf. Growth with the number
of labels is measured on synthetic problems: a document is the Gaussian centre of its label, 30 of
which are near each other, plus noise, in 16 dimensions; four documents a label on average, by
Zipf's law. Times are the
process's own (all threads), for fits those of a clock too, the smallest of several runs where one
is short; so other load on the machine shows in the latter. Set OMP_NUM_THREADS to the cores that
are free.
"""

from __future__ import annotations

import argparse
import math
import os
import runpy
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from machine import begin
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from recording import add_json_option, keep
from scipy.sparse import coo_array, csr_array
from sklearn.decomposition import TruncatedSVD

from longtail.models.label_tree.corrected_top_k import TreeSource
from longtail.training.configuration.sections import SparseConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.label_tree.fit import FittedTree, fit_tree
from longtail.training.sparse.tfidf import fit_tfidf

Result = TypeVar("Result")
NUM_COMPONENTS = 16
REFERENCE = Path(__file__).parents[1] / "training" / "label_tree" / "test_tree.py"
SEARCHED = 100  # labels wanted a document


@dataclass(frozen=True)
class Corpus:
    """Vectors and labels of training documents and of others."""

    vectors: np.ndarray
    truth: csr_array
    judged_vectors: np.ndarray
    judged_truth: csr_array


def main() -> None:
    """Measure what is asked for, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("LONGTAIL_DATA"))
    parser.add_argument("--sets", nargs="*", default=["eurlex57k", "library-keywords"])
    parser.add_argument("--regulariser", type=float, help="default: by cross-validation")
    parser.add_argument("--reference", action="store_true", help="also fit node by node: minutes")
    parser.add_argument("--sizes", type=int, nargs="*", default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--plot", type=Path)
    add_json_option(parser)
    options = begin(parser)
    print(f"{torch.get_num_threads()} threads\n")
    if options.sets and not options.data:
        parser.error("name the folder of the data sets in --data or LONGTAIL_DATA")
    if options.sets:
        print_fits(options)
    if options.sizes:
        print(growth_header())
        growth = []
        for size in options.sizes:
            growth.append(measure_growth(size))
            print(row_of(growth[-1]), flush=True)
        if options.plot:
            draw(growth, options.plot)
        keep(options.json, {"growth": [asdict(each) for each in growth]}, seeds=[0])


def print_fits(options: argparse.Namespace) -> None:
    """Print how long the real sets take, and what the trees are worth."""
    for name in options.sets:
        corpus = read_corpus(options.data / name)
        regulariser = options.regulariser
        if regulariser is None:
            chosen, clock, _ = timed(lambda corpus=corpus: fit_tree(corpus.vectors, corpus.truth))
            regulariser = chosen.regulariser
            print(f"{name}: cross-validation and fit {clock:.0f} s; held out {chosen.held_out}")
        fitted, clock, process = min(
            (
                timed(lambda c=corpus, r=regulariser: fit_tree(c.vectors, c.truth, regulariser=r))
                for _ in range(3)
            ),
            key=lambda run: run[1],
        )
        print(
            f"{name}: {corpus.truth.nnz:,} pairs, {corpus.truth.shape[1]:,} labels, lambda "
            f"{regulariser:g}: {clock:.1f} s ({process:.1f} s of CPU)\n"
            f"  training, nats a pair: tree {fitted.log_likelihood:.4f}, "
            f"frequencies {frequencies(corpus, corpus.truth):.4f}\n"
            f"  dev: tree {judged(fitted, corpus):.4f}, "
            f"frequencies {frequencies(corpus, corpus.judged_truth):.4f}"
        )
        if options.reference:
            reference, clock, _ = timed(lambda f=fitted, c=corpus: reference_of(f, c))
            print(f"  reference, node by node: {reference:.4f} in {clock:.0f} s")


def read_corpus(folder: Path) -> Corpus:
    """Return the documents of a data set, with the labels that training documents carry."""
    dataset = open_dataset(folder)
    training, dev = dataset.split("train"), dataset.split("dev")
    tfidf, features = fit_tfidf(training.texts(), SparseConfig())
    svd = TruncatedSVD(128, random_state=0)
    vectors = svd.fit_transform(features).astype(np.float32)
    judged_vectors = svd.transform(tfidf.transform(dev.texts())).astype(np.float32)
    truth = training.scan().labels
    is_used = np.bincount(truth.indices, minlength=truth.shape[1]) > 0
    return Corpus(vectors, truth[:, is_used], judged_vectors, dev.scan().labels[:, is_used])


def reference_of(fitted: FittedTree, corpus: Corpus) -> float:
    """Return nats a pair of the fit by node that the tests compare with."""
    log_likelihood = runpy.run_path(str(REFERENCE))["reference_log_likelihood"]
    features = fitted.tree.project(torch.from_numpy(corpus.vectors)).numpy()
    return float(log_likelihood(features, corpus.truth, fitted.regulariser) / corpus.truth.nnz)


def frequencies(corpus: Corpus, truth: csr_array) -> float:
    """Return nats a pair of label frequencies in training."""
    counts = corpus.truth.sum(axis=0)
    return float(np.log(counts / counts.sum())[truth.indices].mean())


def judged(fitted: FittedTree, corpus: Corpus) -> float:
    """Return nats a pair of the tree on the documents not trained on."""
    pairs = coo_array(corpus.judged_truth)
    features = fitted.tree.project(torch.from_numpy(corpus.judged_vectors))
    indices = (torch.from_numpy(x.astype(np.int64)) for x in (pairs.row, pairs.col))
    total = fitted.tree.log_likelihood(features, *indices, torch.from_numpy(pairs.data))
    return total / pairs.nnz


@dataclass(frozen=True)
class Growth:
    """What a number of labels costs, in seconds; CPU time for the fit."""

    num_labels: int
    num_pairs: int
    fit_clock: float
    fit: float
    draw: float
    all_labels: float
    best_in_batch: float
    best_alone: float


def measure_growth(num_labels: int) -> Growth:
    """Fit a synthetic problem, and time what can be asked of the tree."""
    vectors, truth = synthetic(num_labels)
    fitted, clock, process = timed(lambda: fit_tree(vectors, truth, regulariser=1.0))
    tree = fitted.tree
    batch = np.resize(vectors, (256, NUM_COMPONENTS))
    features = tree.project(torch.from_numpy(np.resize(vectors, (2**16, NUM_COMPONENTS))))
    generator = torch.Generator().manual_seed(0)
    everyone, one = np.arange(256), np.arange(1)
    return Growth(
        num_labels=num_labels,
        num_pairs=truth.nnz,
        fit_clock=clock,
        fit=process,
        draw=shortest(lambda: tree.sample(features, 16, generator)) / 2**20,
        all_labels=shortest(lambda: tree.log_probs(features[:8])) / 8,
        best_in_batch=shortest(lambda: TreeSource(tree, batch).top(everyone, SEARCHED)) / 256,
        best_alone=shortest(lambda: TreeSource(tree, batch[:1]).top(one, SEARCHED)),
    )


def synthetic(num_labels: int) -> tuple[np.ndarray, csr_array]:
    """Return documents of one label each; every label has one at least."""
    rng = np.random.default_rng(0)
    popularity = 1 / np.arange(1, num_labels + 1)
    drawn = rng.choice(num_labels, 3 * num_labels, p=popularity / popularity.sum())
    labels = np.concatenate([np.arange(num_labels), drawn])
    cluster = np.arange(num_labels) % max(1, num_labels // 30)
    shape = (num_labels, NUM_COMPONENTS)
    centres = rng.standard_normal(shape, dtype=np.float32)[cluster]
    centres += np.float32(0.5) * rng.standard_normal(shape, dtype=np.float32)
    noise = rng.standard_normal((len(labels), NUM_COMPONENTS), dtype=np.float32)
    ones = np.ones(len(labels), dtype=np.float32)
    truth = csr_array((ones, labels, np.arange(len(labels) + 1)), shape=(len(labels), num_labels))
    return centres[labels] + np.float32(0.3) * noise, truth


def growth_header() -> str:
    """Return the head of the table of what numbers of labels cost."""
    columns = (
        "labels",
        "pairs",
        "fit, s",
        "fit, s of CPU",
        "of it ns a pair and level",
        "million draws a second",
        "log p_n of all, ms a document",
        f"best {SEARCHED} of 256 documents, ms each",
        f"best {SEARCHED} of one, ms",
    )
    return f"\n| {' | '.join(columns)} |\n|{'---:|' * len(columns)}"


def row_of(growth: Growth) -> str:
    """Return the row of a number of labels."""
    per_level = growth.fit / growth.num_pairs / math.log2(growth.num_labels)
    cells = (
        f"{growth.num_labels:,}",
        f"{growth.num_pairs:,}",
        f"{growth.fit_clock:.1f}",
        f"{growth.fit:.1f}",
        f"{1e9 * per_level:.0f}",
        f"{1e-6 / growth.draw:.2f}",
        f"{1e3 * growth.all_labels:.2f}",
        f"{1e3 * growth.best_in_batch:.2f}",
        f"{1e3 * growth.best_alone:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def draw(growth: list[Growth], path: Path) -> None:
    """Draw the fit over N log C, and a draw over log C."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    sizes = [each.num_labels for each in growth]
    work = np.array([each.num_pairs * math.log2(each.num_labels) for each in growth])
    seconds = np.array([each.fit for each in growth])
    left.loglog(sizes, seconds, "o-", label="fit, seconds of CPU")
    left.loglog(sizes, work * (seconds / work).mean(), "k:", label="in proportion to N log C")
    left.set(xlabel="labels C (N = 4 C pairs)", ylabel="seconds")
    left.legend()
    right.semilogx(sizes, [1e9 * each.draw for each in growth], "s-", label="a draw")
    right.set(xlabel="labels C", ylabel="nanoseconds", ylim=(0, None))
    right.legend()
    figure.savefig(path, dpi=120)


def timed(work: Callable[[], Result]) -> tuple[Result, float, float]:
    """Return a result, and the seconds that it took by the clock and of the processors."""
    clock, process = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - clock, time.process_time() - process


def shortest(work: Callable[[], object]) -> float:
    """Return the least seconds of the processors that a run takes, of seven."""
    return min(timed(work)[2] for _ in range(7))


if __name__ == "__main__":
    main()
