"""How the sparse model's training grows with labels and documents, on made-up corpora.

    python tests/bench/sparse_scaling.py --output runs/scaling        # two hours or more on 2 cores
    python tests/bench/sparse_scaling.py --output runs/scaling --sample 20000
    python tests/bench/sparse_scaling.py --output runs/scaling --smoke

With a sample, so many labels are trained, evenly from the most to the least frequent, and their
time, weights and memory are scaled up to all: labels are trained independently of each other. The
smallest size is trained whole as well, to show how far off that is.

Every size runs in a process of its own; what is done is kept in scaling.json, so a bench that was
stopped goes on. Growth is judged by CPU time, which other work on the machine changes little.
Writes scaling.md and scaling.png.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from joblib import cpu_count
from machine import begin
from matplotlib.figure import Figure
from recording import add_json_option, keep
from scipy.sparse import csr_array
from synthetic import SyntheticCorpus

from longtail.models.scorers.tfidf import TfidfModel
from longtail.training.configuration.sections import SparseConfig
from longtail.training.sparse.fit import fit_sparse_model
from longtail.training.sparse.svm import SvmProblem, joined

SIZES = [  # documents, labels
    (500_000, 125_000),
    (1_000_000, 125_000),
    (2_000_000, 125_000),
    (2_000_000, 250_000),
    (2_000_000, 500_000),
    (2_000_000, 1_000_000),
]
SMOKE_SIZES = [(20_000, 2_000), (20_000, 4_000)]
NUM_FEATURES = 300_000
CHUNK = 16  # labels that one thread fits at a time
BYTES_A_WEIGHT = 8  # value and column


def main() -> None:
    """Measure every size that is not measured yet; write the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("runs/scaling"))
    parser.add_argument("--smoke", action="store_true", help="two small sizes only")
    parser.add_argument("--negatives-per-document", type=int, help="see SparseConfig")
    parser.add_argument("--sample", type=int, default=0, help="labels trained; 0: all")
    parser.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    add_json_option(parser)
    options = begin(parser)
    config = SparseConfig()
    if options.negatives_per_document:
        config = SparseConfig(negatives_per_document=options.negatives_per_document)
    if options.one:
        print(json.dumps(measure(*options.one, config, options.sample)))
        return
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "scaling.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    sizes = SMOKE_SIZES if options.smoke else SIZES
    wanted = [(*size, options.sample) for size in sizes]
    if options.sample:
        wanted.append((*sizes[0], 0))
    for documents, labels, sample in wanted:
        key = f"{documents}x{labels}" + (f" by {sample}" if sample else "")
        if key not in found:
            command = [sys.executable, __file__, "--one", str(documents), str(labels)]
            command += ["--negatives-per-document", str(config.negatives_per_document)]
            command += ["--sample", str(sample)]
            output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            found[key] = json.loads(output.splitlines()[-1])
            path.write_text(json.dumps(found, indent=1) + "\n")
    rows = sorted(found.values(), key=lambda row: (row["documents"], row["labels"], row["trained"]))
    (options.output / "scaling.md").write_text(table(rows))
    draw(rows).savefig(options.output / "scaling.png", dpi=150)
    print(table(rows))
    keep(options.json, {"sizes": rows}, seeds=[0])


def measure(documents: int, labels: int, config: SparseConfig, sample: int) -> dict[str, float]:
    """Train on one made-up corpus; of a sample of the labels, scale the figures up to all."""
    features, truth = SyntheticCorpus(documents, labels, NUM_FEATURES).make()
    return {
        "documents": documents,
        "labels": labels,
        "nonzeros": features.nnz + truth.nnz,
    } | (
        train_sample(features, truth, config, sample)
        if sample
        else train_all(features, truth, config)
    )


class Stopwatch:
    """Seconds, by the clock and of CPU, since it was made."""

    def __init__(self) -> None:
        self._starts = np.array([time.monotonic(), time.process_time()])

    def read(self) -> np.ndarray:
        """Return both."""
        return np.array([time.monotonic(), time.process_time()]) - self._starts


def train_all(features: csr_array, truth: csr_array, config: SparseConfig) -> dict[str, float]:
    """Train all labels as a run does."""
    tfidf = TfidfModel(list(map(str, range(NUM_FEATURES))), np.ones(NUM_FEATURES, np.float32))
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as name:
        model = fit_sparse_model(tfidf, features, truth, config, seed=0, folder=Path(name))
    return figures(truth.shape[1], model.weights.nnz, watch.read(), peak_gib())


def train_sample(
    features: csr_array, truth: csr_array, config: SparseConfig, sample: int
) -> dict[str, float]:
    """Train some labels, from frequent to rare, and scale up what that took."""
    watch = Stopwatch()
    by_label = csr_array(truth.T)
    problem = SvmProblem(features, by_label, config, seed=0)
    preparing = watch.read()
    counts = np.diff(by_label.indptr)
    covered = np.flatnonzero(counts)
    covered = covered[np.argsort(-counts[covered], kind="stable")]
    chosen = covered[np.linspace(0, len(covered) - 1, min(sample, len(covered))).astype(np.int64)]
    chunks = np.array_split(np.sort(chosen), -(-len(chosen) // CHUNK))
    problem.fit(chosen[-1:])  # compiles
    watch = Stopwatch()
    with ThreadPoolExecutor(max_workers=cpu_count()) as threads:
        fitted = joined(list(threads.map(problem.fit, chunks)))
    times = len(covered) / len(chosen)
    weights = times * len(fitted.weights)
    gib = peak_gib() + (weights - len(fitted.weights)) * BYTES_A_WEIGHT / 2**30
    return figures(len(chosen), weights, preparing + times * watch.read(), gib)


def figures(trained: int, weights: float, times: np.ndarray, gib: float) -> dict[str, float]:
    """Return what is kept of a training."""
    seconds, cpu = times.tolist()
    return {"trained": trained, "weights": weights, "seconds": seconds, "cpu": cpu, "gib": gib}


def peak_gib() -> float:
    """Return the most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def cost(row: dict[str, float]) -> float:
    """Return nanoseconds of CPU for each non-zero and binary digit of the number of labels."""
    return 1e9 * row["cpu"] / (row["nonzeros"] * math.log2(row["labels"]))


def table(rows: list[dict[str, float]]) -> str:
    """Return all that was measured as Markdown."""
    lines = [
        "| documents | labels | trained | non-zeros, M | weights, M | s | CPU s | GiB | ns each |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['documents']:,} | {row['labels']:,} | {row['trained']:,} "
        f"| {row['nonzeros'] / 1e6:.0f} "
        f"| {row['weights'] / 1e6:.0f} | {row['seconds']:.0f} "
        f"| {row['cpu']:.0f} | {row['gib']:.2f} | {cost(row):.1f} |"
        for row in rows
    ]
    unit = "GiB is the peak; the last column is CPU for a non-zero of the data times log2(labels)."
    return "\n".join(lines) + f"\n\n{unit}\n"


def draw(rows: list[dict[str, float]]) -> Figure:
    """Return time and memory, once over the documents and once over the labels."""
    rows = [row for row in rows if row["trained"] < row["labels"]] or rows
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots(2, 2, sharex="col")
    fewest = min(row["labels"] for row in rows)
    most = max(row["documents"] for row in rows)
    by_documents = [row for row in rows if row["labels"] == fewest]
    by_labels = [row for row in rows if row["documents"] == most]
    columns = (
        ("documents", by_documents, f"{fewest:,} labels"),
        ("labels", by_labels, f"{most:,} documents"),
    )
    for column, (name, chosen, title) in enumerate(columns):
        sizes = [row[name] for row in chosen]
        work = [row["nonzeros"] * math.log2(row["labels"]) for row in chosen]
        axes[0, column].plot(sizes, [row["cpu"] for row in chosen], "o-", label="measured")
        bound = [chosen[0]["cpu"] * each / work[0] for each in work]
        axes[0, column].plot(sizes, bound, "k:", label="non-zeros x log(labels)")
        axes[0, column].set(title=title, ylabel="training, CPU s", ylim=(0, None))
        axes[0, column].legend()
        axes[1, column].plot(sizes, [row["gib"] for row in chosen], "o-")
        axes[1, column].set(xlabel=name, ylabel="peak memory, GiB")
        axes[1, column].set_ylim(0, 1.15 * max(row["gib"] for row in chosen))
    return figure


if __name__ == "__main__":
    main()
