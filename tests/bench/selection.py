"""How many documents `longtail select` needs for what random choice reaches with more.

    python tests/bench/selection.py training/demo_data --start 300 --seeds 5 --json selection.json
    python tests/bench/selection.py <folder of tate> --documents 20000 --start 1000 --seeds 5

Of the training documents some are labelled at first, drawn at random. A model without an encoder is
trained on them, more are chosen, by it or at random, and so on, half as many again each time; what
is not chosen counts as unlabelled. Each model is measured on the dev split, which is made where the
corpus has none; `--split test` is for the last run. Macro-F1@5 is over the labels that a document
of the split carries. The share is that of the documents with which select reaches what random
choice reaches with all of them, between two steps by a line over the logarithm; "-" where it
doesn't.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean

import numpy as np
from jaxtyping import Float32
from machine import begin
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from recording import Table, add_json_option, keep
from scipy.sparse import csr_array

from longtail.models.interface.model import LoadedModel
from longtail.models.options import RankingOptions
from longtail.models.selection.choice import choose, similar_documents
from longtail.models.selection.pool import read_pool
from longtail.training.data.dataset import open_dataset
from longtail.training.data.held_out import with_held_out_dev
from longtail.training.estimators.classifier import LongtailClassifier
from longtail.training.evaluation.metrics import join_truth, label_f1_at, precision_at

K = 5
GROWTH = 1.5
SCORER = "sparse"
"""By which is chosen and measured; the default one may differ from step to step."""
HELD_OUT = 0.1
RANDOM = "random"
MEASURES = ("P@5", "macro-F1@5")
STEPS = {
    "choice": "", "seed": "", "documents": ",", "labels a document": ".2f", "labels seen": ",",
    **dict.fromkeys(MEASURES, ".2f"),
}  # fmt: skip
SHARES = {"choice": "", "documents at random": ",", **dict.fromkeys(MEASURES, ".2f"), "seeds": ""}


@dataclass(frozen=True, slots=True)
class Documents:
    """Texts with their labels."""

    texts: Sequence[str]
    truth: Float32[csr_array, "document label"]

    def take(self, rows: Sequence[int]) -> Documents:
        return Documents([self.texts[row] for row in rows], csr_array(self.truth[rows]))


@dataclass(frozen=True, slots=True)
class Trial:
    """What is chosen from, and what is measured on."""

    training: Documents
    measured: Documents
    names: dict[int, str]
    sizes: Sequence[int]


def main() -> None:
    """Simulate each choice with each seed; print the tables, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--start", type=int, default=300, help="documents labelled at first")
    parser.add_argument("--documents", type=int, default=10**9, help="most documents to choose of")
    parser.add_argument("--most", type=float, default=0.5, help="of them, share to label at last")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--rare-shares", type=float, nargs="*", default=[0.0])
    parser.add_argument("--plot", type=Path)
    add_json_option(parser)
    options = begin(parser)
    choices = {RANDOM: None, **{name_of(share): share for share in options.rare_shares}}
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    steps = Table(STEPS)
    for seed in seeds:
        trial = trial_of(options, seed)
        first = fitted(trial, range(options.start))
        for name, share in choices.items():
            simulate(trial, first, name, share, seed, steps)
        keep(options.json, {"steps": steps}, seeds=seeds)  # so that a run that is cut off has some
    shares = shares_of(steps.rows)
    keep(options.json, {"steps": steps, "shares": shares}, seeds=seeds)
    if options.plot is not None:
        plot(steps.rows, options.plot)


def name_of(rare_share: float) -> str:
    return "select" if rare_share == 0 else f"select, {rare_share:.0%} for rare labels"


def trial_of(options: argparse.Namespace, seed: int) -> Trial:
    """Return the training documents in the order in which random choice takes them.

    Raises:
        SystemExit: The corpus is too small.
    """
    corpus = open_dataset(options.corpus)
    if options.split == "dev" and "dev" not in corpus.split_names:
        view = with_held_out_dev(corpus, HELD_OUT)
        if view is None:
            raise SystemExit(f"{options.corpus}: too small to hold documents out")
        corpus = view
    training, measured = (
        Documents(list(split.texts()), csr_array(split.scan().labels))
        for split in (corpus.split("train"), corpus.split(options.split))
    )
    order = np.random.default_rng(seed).permutation(len(training.texts))[: options.documents]
    sizes, size = [options.start], options.start
    while (size := round(size * GROWTH)) <= options.most * len(order):
        sizes.append(size)
    names = {row: label.name for row, label in enumerate(corpus.labels)}
    return Trial(training.take(order.tolist()), measured, names, sizes)


def simulate(
    trial: Trial, first: LoadedModel, name: str, share: float | None, seed: int, steps: Table
) -> None:
    """Label, train and measure, step by step; one row each."""
    labelled = list(range(trial.sizes[0]))
    model = first
    for size in trial.sizes:
        if size > len(labelled):
            labelled += chosen(trial, model, labelled, size - len(labelled), share)
            model = fitted(trial, labelled)
        counts = np.asarray(trial.training.truth[labelled].sum(axis=0)).ravel()
        a_document = counts.sum() / len(labelled)
        row = measured(model, trial.measured)
        steps.add(name, seed, len(labelled), a_document, np.count_nonzero(counts), *row)


def chosen(
    trial: Trial, model: LoadedModel, labelled: Sequence[int], number: int, share: float | None
) -> list[int]:
    """Return the documents to label next; the first of equal texts stands for all of them."""
    taken = set(labelled)
    left = [row for row in range(len(trial.training.texts)) if row not in taken]
    if share is None:
        return left[:number]
    rows: dict[str, list[int]] = {}
    for row in left:
        rows.setdefault(trial.training.texts[row], []).append(row)
    pool = read_pool(model.predictor, list(rows), SCORER)
    copies = np.array([len(each) for each in rows.values()], dtype=np.int64)
    similar = similar_documents(pool.features)
    found = choose(pool, similar, copies, number, rare_share=share)
    of_texts = [each[0] for each in rows.values()]
    return [of_texts[each.document] for each in found]


def fitted(trial: Trial, rows: Sequence[int]) -> LoadedModel:
    """Return a model of some documents, without an encoder."""
    documents = trial.training.take(rows)
    found = LongtailClassifier(config={"scorers": [SCORER, "neighbours"]}, label_texts=trial.names)
    found.fit(documents.texts, documents.truth)
    return found._loaded()


def measured(model: LoadedModel, documents: Documents) -> list[float]:
    """Return `MEASURES` in percent."""
    predictor = model.predictor
    batch = predictor.read(documents.texts)
    joined = join_truth(
        predictor.rank(batch, RankingOptions(k=K, scorer=SCORER)).labels, documents.truth
    )
    f1 = label_f1_at(joined, K)[np.unique(joined.true_labels)].mean()
    return [100 * precision_at(joined, K), 100 * float(f1)]


def shares_of(rows: Sequence[Sequence[object]]) -> Table:
    """Return, for each size of random choice, the mean share that the other choices need."""
    curves: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    for name, seed, size, _, _, *values in rows:
        curves.setdefault((str(name), int(seed)), []).append((float(size), *map(float, values)))  # type: ignore[call-overload]
    table = Table(SHARES)
    seeds = sorted({seed for _, seed in curves})
    sizes = [int(step[0]) for step in curves[RANDOM, seeds[0]]]
    for name in dict.fromkeys(name for name, _ in curves if name != RANDOM):
        for place, size in enumerate(sizes[1:], 1):
            cells = []
            for measure in range(1, len(MEASURES) + 1):
                found = [
                    needed(curves[name, seed], measure, curves[RANDOM, seed][place][measure])
                    for seed in seeds
                ]
                is_reached = None not in found
                cells.append(mean(x / size for x in found if x) if is_reached else None)
            table.add(name, size, *cells, len(seeds))
    return table


def needed(curve: Sequence[tuple[float, ...]], measure: int, value: float) -> float | None:
    """Return with how many documents a curve first reaches a value; None where it doesn't."""
    for before, after in pairwise(curve):
        if after[measure] >= value:
            rise = after[measure] - before[measure]
            part = max(0.0, (value - before[measure]) / rise) if rise > 0 else 0.0
            return float(before[0] * (after[0] / before[0]) ** part)
    return None


def plot(rows: Sequence[Sequence[object]], path: Path) -> None:
    """Draw the means over the seeds."""
    figure = Figure(figsize=(8, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, place, measure in zip(figure.subplots(1, 2), (5, 6), MEASURES, strict=True):
        for name in dict.fromkeys(str(row[0]) for row in rows):
            values: dict[int, list[float]] = {}
            for row in rows:
                if row[0] == name:
                    values.setdefault(int(row[2]), []).append(float(row[place]))  # type: ignore[call-overload,arg-type]
            axes.plot(list(values), [mean(each) for each in values.values()], "o-", label=name)
        axes.set(xscale="log", xlabel="labelled documents", ylabel=f"{measure}, %")
        axes.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
