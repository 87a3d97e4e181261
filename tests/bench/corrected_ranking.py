"""Two ways to the exact corrected top k: how long each takes, and how many labels one touches.

    OMP_NUM_THREADS=1 python tests/bench/corrected_ranking.py --output runs/corrected_ranking

Synthetic problems: 384 dimensions, of which a document's vector is its label's centre plus noise;
30 labels are near each other, and labels follow Zipf's law. A tree is fitted to them, and scorers
are trained on its draws (adversarial, one epoch or more). Queries are drawn like the documents.
With `--registry` and `--data`, a published model's `linear` scorer and the texts of a dev split
take their place.

"certified" is the Threshold Algorithm over the index and the tree, "all" scores all labels,
"uncorrected" is the exact top k of the index alone, and "plain" is what is compared with: one
float32 matrix product and its top k, without a correction.
Times are the process's own (CPU), the least of several rounds in which all take turns: with
one thread, what a clock would show on a machine that does nothing else. Touched are the labels that
the certified way scores, of a single query.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from machine import begin
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from recording import add_json_option, keep
from scipy.sparse import csr_array

from longtail.models.bundle.registry import Registry
from longtail.models.label_tree.corrected_top_k import CorrectedSource, IndexCorrection, TreeSource
from longtail.models.label_tree.tree import LabelTree
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.index import InnerProductIndex, InnerProductSource
from longtail.models.ranking.threshold_algorithm import SUM, Sources, rank
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.training.data.dataset import open_dataset
from longtail.training.label_tree.fit import fit_tree
from longtail.training.linear.trainer import LinearOptions, train_linear
from research.experiments.adversarial.methods import make_method

DIM = 384
NUM_COMPONENTS = 16
NUM_QUERIES = 256
BATCH_SIZES = (1, 64)
KS = (5, 10)


@dataclass(frozen=True)
class Model:
    """Indexed label vectors, a tree, and document vectors to ask with."""

    index: InnerProductIndex
    tree: LabelTree
    vectors: np.ndarray

    @property
    def queries(self) -> np.ndarray:
        """The vectors, with an entry for the bias."""
        return np.hstack([self.vectors, np.ones((len(self.vectors), 1), dtype=np.float32)])


@dataclass(frozen=True)
class Measured:
    """Seconds a batch for a number of labels, a batch size and a k."""

    num_labels: int
    batch_size: int
    k: int
    touched_mean: float
    touched_p95: float
    certified: float
    scoring_all: float
    uncorrected: float
    plain: float


def main() -> None:
    """Measure what is asked for, and write the table and the plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--documents", type=int, default=4, help="a label, up to 100,000 labels")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--registry", type=Path, help="a published model instead of synthetic ones")
    parser.add_argument("--data", type=Path, help="its corpus")
    parser.add_argument("--output", type=Path, default=Path("runs/corrected_ranking"))
    add_json_option(parser)
    options = begin(parser)
    models = (
        [published(options.registry, options.data)]
        if options.registry
        else (synthetic(size, options.documents, options.epochs) for size in options.sizes)
    )
    found: list[Measured] = []
    print(table_header())
    for model in models:
        for measured in measure(model, options.rounds):
            found.append(measured)
            print(row_of(measured), flush=True)
    write(found, options.output)
    keep(options.json, {"sizes": [asdict(each) for each in found]}, seeds=[0])


def synthetic(num_labels: int, documents_a_label: int, epochs: int) -> Model:
    """Return a tree and scorers that were trained on made-up documents."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((max(1, num_labels // 30), DIM), dtype=np.float32)
    offsets = 0.5 * rng.standard_normal((num_labels, DIM), dtype=np.float32)
    popularity = 1 / np.arange(1, num_labels + 1)
    popularity /= popularity.sum()

    def documents_of(labels: np.ndarray) -> np.ndarray:
        vectors = centres[labels % len(centres)]
        vectors += offsets[labels]
        for start in range(0, len(vectors), 2**14):
            part = vectors[start : start + 2**14]
            np.add(part, 0.5 * rng.standard_normal(part.shape, dtype=np.float32), out=part)
        vectors /= np.float32(np.sqrt(DIM))
        return vectors

    count = documents_a_label * num_labels if num_labels <= 10**5 else 2 * num_labels
    drawn = rng.choice(num_labels, count - num_labels, p=popularity)
    labels = np.concatenate([np.arange(num_labels), drawn])
    vectors = documents_of(labels)
    truth = csr_array(
        (np.ones(count, dtype=np.float32), labels, np.arange(count + 1)), shape=(count, num_labels)
    )
    tree = fit_tree(vectors, truth, num_components=NUM_COMPONENTS, regulariser=1.0).tree
    method = make_method("adversarial", vectors, truth, regulariser=1e-3, tree=tree)
    options = LinearOptions(learning_rate=0.3, epochs=epochs, exclude=method.exclude)
    model = train_linear(vectors, truth, method.objective, options)
    asked = rng.choice(num_labels, NUM_QUERIES, p=popularity)
    index = InnerProductIndex(np.column_stack([model.weight, model.bias]), model.labels)
    return Model(index, tree, documents_of(asked))


def published(registry: Path, data: Path) -> Model:
    """Return the scorer `linear` of the current version, and texts of the dev split."""
    bundle = Registry(registry).open("current")
    predictor = Predictor.of_bundle(bundle, device="cpu")
    scorer = predictor.parts.models["linear"]
    texts = list(islice(open_dataset(data).split("dev").texts(), NUM_QUERIES))
    linear = scorer.model
    index = InnerProductIndex(np.column_stack([linear.weight, linear.bias]), linear.labels)
    return Model(index, scorer.tree, predictor.read(texts).vectors)


def measure(model: Model, rounds: int) -> list[Measured]:
    """Measure all batch sizes and ks on a model; the two ways must agree."""
    found = []
    for k in KS:
        touched = touched_labels(model, k)
        for batch_size in BATCH_SIZES:
            rows = np.resize(np.arange(len(model.vectors)), batch_size)
            vectors, queries = model.vectors[rows], model.queries[rows]
            ways: dict[str, Callable[[], object]] = {
                "certified": lambda v=vectors, q=queries, k=k: certified(model, q, v, k),
                "scoring_all": lambda v=vectors, q=queries, k=k: scoring_all(model, q, v, k),
                "uncorrected": lambda q=queries, k=k: model.index.top(q, k),
                "plain": lambda q=queries, k=k: plain(model.index, q, k),
            }
            check(certified(model, queries, vectors, k), ways["scoring_all"]())
            found.append(
                Measured(
                    num_labels=len(model.index),
                    batch_size=batch_size,
                    k=k,
                    touched_mean=float(touched.mean()),
                    touched_p95=float(np.quantile(touched, 0.95)),
                    **least_seconds(ways, rounds),
                )
            )
    return found


def certified(model: Model, queries: np.ndarray, vectors: np.ndarray, k: int) -> Ranking:
    """Rank by the Threshold Algorithm."""
    products = InnerProductSource(model.index, queries)
    return _certified([products, TreeSource(model.tree, vectors)], model, k)


def scoring_all(model: Model, queries: np.ndarray, vectors: np.ndarray, k: int) -> Ranking:
    """Rank by the scores of all labels."""
    with mock.patch("longtail.models.label_tree.corrected_top_k._FEW", 0):
        source = CorrectedSource(IndexCorrection(model.index, model.tree), queries, vectors)
        return source.top(np.arange(len(queries)), k)


def _certified(sources: Sources, model: Model, k: int) -> Ranking:
    with mock.patch("longtail.models.ranking.top_k._ALWAYS_UP_TO", 0):
        return rank([sources], SUM, k, model.tree.num_labels)


def plain(index: InnerProductIndex, queries: np.ndarray, k: int) -> np.ndarray:
    """Return the k best labels by one matrix product."""
    products = queries @ index.vectors.T
    best = np.argpartition(-products, k - 1, axis=1)[:, :k]
    order = np.argsort(-np.take_along_axis(products, best, axis=1), axis=1)
    return np.take_along_axis(best, order, axis=1)


def check(found: Ranking, wanted: object) -> None:
    """Stop where the two ways differ."""
    assert isinstance(wanted, Ranking)
    np.testing.assert_array_equal(found.labels, wanted.labels)
    np.testing.assert_array_equal(found.scores, wanted.scores)


class Counting(TreeSource):
    """A tree that keeps the labels whose score it was asked for."""

    touched: set[int]

    def score(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the scores (see `TreeSource.score`)."""
        self.touched |= set(labels[labels != NO_LABEL].tolist())
        return super().score(rows, labels)


def touched_labels(model: Model, k: int) -> np.ndarray:
    """Return how many labels the certified way scores for each query alone."""
    counts = []
    for vector, query in zip(model.vectors[:, None], model.queries[:, None], strict=True):
        counting = Counting(model.tree, vector)
        counting.touched = set()
        _certified([InnerProductSource(model.index, query), counting], model, k)
        counts.append(len(counting.touched))
    return np.array(counts)


def least_seconds(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the least CPU time of each way; they take turns."""
    seconds = dict.fromkeys(ways, np.inf)
    for _ in range(rounds):
        for name, work in ways.items():
            started = time.process_time()
            work()
            seconds[name] = min(seconds[name], time.process_time() - started)
    return seconds


COLUMNS = (
    "labels",
    "batch",
    "k",
    "touched, mean",
    "95th percentile",
    "% of the labels",
    "certified, ms",
    "all, ms",
    "plain, ms",
    "certified / all",
    "faster of both / plain",
    "uncorrected / plain",
)


def table_header() -> str:
    """Return the head of the table."""
    return f"| {' | '.join(COLUMNS)} |\n|{'---:|' * len(COLUMNS)}"


def row_of(found: Measured) -> str:
    """Return the row of a measurement."""
    cells = (
        f"{found.num_labels:,}",
        f"{found.batch_size}",
        f"{found.k}",
        f"{found.touched_mean:.0f}",
        f"{found.touched_p95:.0f}",
        f"{100 * found.touched_mean / found.num_labels:.3f}",
        f"{1e3 * found.certified:.2f}",
        f"{1e3 * found.scoring_all:.2f}",
        f"{1e3 * found.plain:.2f}",
        f"{found.certified / found.scoring_all:.2f}",
        f"{min(found.certified, found.scoring_all) / found.plain:.2f}",
        f"{found.uncorrected / found.plain:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def write(found: list[Measured], folder: Path) -> None:
    """Write the table and the plot."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{torch.get_num_threads()} threads", "", table_header(), *map(row_of, found)]
    (folder / "results.md").write_text("\n".join(lines) + "\n")
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for batch_size, style in zip(BATCH_SIZES, ("o-", "s--"), strict=True):
        some = [each for each in found if (each.batch_size, each.k) == (batch_size, KS[-1])]
        sizes = [each.num_labels for each in some]
        for name, colour in (("certified", "C0"), ("scoring_all", "C1"), ("plain", "0.5")):
            values = [1e3 * getattr(each, name) / batch_size for each in some]
            label = f"{name.replace('_', ' ')}, batch {batch_size}"
            left.loglog(sizes, values, style, color=colour, label=label)
    left.set(xlabel="labels", ylabel=f"ms a document, k = {KS[-1]}")
    left.legend(fontsize="small")
    for k, style in zip(KS, ("o-", "s--"), strict=True):
        some = [each for each in found if (each.batch_size, each.k) == (BATCH_SIZES[0], k)]
        sizes = [each.num_labels for each in some]
        right.semilogx(sizes, [each.touched_mean for each in some], style, label=f"mean, k = {k}")
        right.semilogx(
            sizes, [each.touched_p95 for each in some], style, alpha=0.5, label=f"95 %, k = {k}"
        )
    right.set(xlabel="labels", ylabel="labels touched", ylim=(0, None))
    right.legend(fontsize="small")
    figure.savefig(folder / "results.png", dpi=120)


if __name__ == "__main__":
    main()
