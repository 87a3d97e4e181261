"""How the sparse model's training grows with labels and documents, on made-up corpora.

    python tests/bench/sparse_scaling.py --output runs/scaling        # about an hour on 2 cores
    python tests/bench/sparse_scaling.py --output runs/scaling --smoke

Every size runs in a process of its own, which reports its time and its peak memory; what is done is
kept in scaling.json, so a bench that was stopped goes on. Growth is judged by CPU time, which other
work on the machine changes little. Writes scaling.md and scaling.png.
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
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from models.sparse import TfidfModel
from training.config import SparseConfig
from training.sparse import fit_sparse_model
from training.synthetic import SyntheticCorpus

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


def main() -> None:
    """Measure every size that is not measured yet; write the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("runs/scaling"))
    parser.add_argument("--smoke", action="store_true", help="two small sizes only")
    parser.add_argument("--negatives-a-document", type=int, help="see SparseConfig")
    parser.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    config = SparseConfig()
    if options.negatives_a_document:
        config = SparseConfig(negatives_a_document=options.negatives_a_document)
    if options.one:
        print(json.dumps(measure(*options.one, config)))
        return
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "scaling.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for documents, labels in SMOKE_SIZES if options.smoke else SIZES:
        key = f"{documents}x{labels}"
        if key not in found:
            command = [sys.executable, __file__, "--one", str(documents), str(labels)]
            command += ["--negatives-a-document", str(config.negatives_a_document)]
            output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            found[key] = json.loads(output.splitlines()[-1])
            path.write_text(json.dumps(found, indent=1) + "\n")
    rows = sorted(found.values(), key=lambda row: (row["documents"], row["labels"]))
    (options.output / "scaling.md").write_text(table(rows))
    draw(rows).savefig(options.output / "scaling.png", dpi=150)
    print(table(rows))


def measure(documents: int, labels: int, config: SparseConfig) -> dict[str, float]:
    """Train on one made-up corpus."""
    started = time.monotonic()
    features, truth = SyntheticCorpus(documents, labels, NUM_FEATURES).make()
    made = time.monotonic() - started
    tfidf = TfidfModel(list(map(str, range(NUM_FEATURES))), np.ones(NUM_FEATURES, np.float32))
    with tempfile.TemporaryDirectory() as name:
        started, started_cpu = time.monotonic(), time.process_time()
        model = fit_sparse_model(tfidf, features, truth, config, seed=0, folder=Path(name))
        seconds, cpu = time.monotonic() - started, time.process_time() - started_cpu
    return {
        "documents": documents,
        "labels": labels,
        "nonzeros": features.nnz + truth.nnz,
        "weights": model.weights.nnz,
        "making": made,
        "seconds": seconds,
        "cpu": cpu,
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def cost(row: dict[str, float]) -> float:
    """Return nanoseconds of CPU for each non-zero and binary digit of the number of labels."""
    return 1e9 * row["cpu"] / (row["nonzeros"] * math.log2(row["labels"]))


def table(rows: list[dict[str, float]]) -> str:
    """Return all that was measured as Markdown."""
    lines = [
        "| documents | labels | non-zeros, M | weights, M | wall, s | CPU, s | GiB | ns a unit |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['documents']:,} | {row['labels']:,} | {row['nonzeros'] / 1e6:.0f} "
        f"| {row['weights'] / 1e6:.0f} | {row['seconds']:.0f} "
        f"| {row['cpu']:.0f} | {row['gib']:.2f} | {cost(row):.1f} |"
        for row in rows
    ]
    unit = "GiB is the peak; a unit is a non-zero of the data times log2 of the labels."
    return "\n".join(lines) + f"\n\n{unit}\n"


def draw(rows: list[dict[str, float]]) -> Figure:
    """Return time and memory, once over the documents and once over the labels."""
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
        axes[1, column].set(xlabel=name, ylabel="peak memory, GiB", ylim=(0, None))
    return figure


if __name__ == "__main__":
    main()
