"""What `longtail learn` reaches beside full training, and in which time.

    python tests/bench/learning.py training/demo_data --labels 20 --documents 200 --without-encoder
    python tests/bench/learning.py <folder of eurlex57k> --json learning.json

Some labels are hidden: with 2 to 20 training documents, all of which are held back, and at least
one in the test split. With them other documents are held back, drawn at random. *before* is trained
on the rest, which has none of these labels; *learned* learns the documents held back from it as
feedback, which names the right labels and proposes the hidden ones; *trained* is trained on all.
All are measured on the test split, with all its labels. The gain is what *learned* adds to
*before*, as a share of what *trained* adds. R@10 of new labels is over the test documents that
carry one. With `--work` what was stopped resumes; its time is that of its stages then.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from machine import begin
from recording import Table, add_json_option, keep

from longtail.ext.learn.learn import LearningRun, learn
from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.registry import Registry
from longtail.models.kinds.registry import without_encoder
from longtail.models.kinds.storage import read_parts
from longtail.models.names import ENSEMBLE
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.configuration.run import TrainingConfig, read_config
from longtail.training.data.chunks import chunks
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.data.feedback import read_feedback
from longtail.training.estimators.corpus import write_documents, write_labels
from longtail.training.evaluation.metrics import (
    inverse_propensities,
    join_truth,
    precision_at,
    propensity_scored_precision_at,
    recall_at,
)
from longtail.training.pipeline.train import Run, train
from longtail.training.runtime.run_log import STAGES_NAME

FEWEST, MOST = 2, 20
"""Training documents of a hidden label."""
METRICS = ("P@5", "PSP@5", "new labels' R@10")
COLUMNS = {
    "scorer": "", "model": "", **dict.fromkeys(METRICS, ".2f"),
    **{f"gain, {name}": ".0f" for name in METRICS}, "seconds": ".0f", "CPU seconds": ".0f",
}  # fmt: skip
TIMES = {"model": "", "seconds": ".0f", "CPU seconds": ".0f", "share of full training": ".1f"}


@dataclass(frozen=True, slots=True)
class Parts:
    """What is hidden and held back.

    Attributes:
        labels: Rows of the hidden labels.
        is_held_back: Whether each training document is.
    """

    labels: list[int]
    is_held_back: np.ndarray


def main() -> None:
    """Train, learn, train again, and measure all three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path, help="with training, dev and test documents")
    parser.add_argument("--labels", type=int, default=100, help="that are hidden")
    parser.add_argument("--documents", type=int, default=1000, help="that are held back")
    parser.add_argument("--config", type=Path, help="YAML file of the training")
    parser.add_argument("--without-encoder", action="store_true")
    parser.add_argument("--seed", type=int, default=0, help="of what is hidden")
    parser.add_argument("--work", type=Path, help="kept, so that trainings resume")
    add_json_option(parser)
    options = begin(parser)
    overrides: dict[str, object] = {}
    if options.without_encoder:
        overrides["scorers"] = [*without_encoder(), ENSEMBLE]
    config = read_config(options.config, overrides)
    whole = open_dataset(options.corpus)
    parts = divide(whole, options.labels, options.documents, options.seed)
    with tempfile.TemporaryDirectory() as scratch:
        quality, times = compare(whole, parts, config, options.work or Path(scratch))
    sizes = {"labels": len(parts.labels), "documents": int(parts.is_held_back.sum())}
    keep(options.json, {"quality": quality, "times": times, "hidden": sizes}, seeds=[options.seed])


def divide(whole: Dataset, num_labels: int, num_documents: int, seed: int) -> Parts:
    """Choose labels and documents by a seed."""
    rng = np.random.default_rng(seed)
    truth, test = (whole.split(name).scan().labels for name in ("train", "test"))
    counts = np.bincount(truth.indices, minlength=truth.shape[1])
    is_tested = np.bincount(test.indices, minlength=truth.shape[1]) > 0
    by_label = truth.T.tocsr()
    is_held_back = np.zeros(truth.shape[0], dtype=np.bool_)
    labels: list[int] = []
    for label in rng.permutation(np.flatnonzero((counts >= FEWEST) & (counts <= MOST) & is_tested)):
        more = is_held_back.copy()
        more[by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]] = True
        if len(labels) < num_labels and more.sum() <= num_documents:
            is_held_back = more
            labels.append(int(label))
    others = rng.permutation(np.flatnonzero(~is_held_back))
    is_held_back[others[: num_documents - int(is_held_back.sum())]] = True
    return Parts(sorted(labels), is_held_back)


def compare(
    whole: Dataset, parts: Parts, config: TrainingConfig, work: Path
) -> tuple[Table, Table]:
    """Make the three models, and return tables of what they reach and of the time they took."""
    before, after, feedback = work / "before", work / "after", work / "feedback.jsonl"
    write_corpus(whole, before, ~parts.is_held_back, parts.labels, are_told=False)
    write_corpus(whole, after, np.ones_like(parts.is_held_back), parts.labels, are_told=True)
    write_feedback(whole, parts, feedback)
    registry, full = Registry(work / "registry"), Registry(work / "registry-of-all")

    def learned() -> int:
        said, corpus = read_feedback(feedback), open_dataset(before)
        return learn(LearningRun(said, corpus, registry, 1, runs["learn"])).version

    runs = {name: work / name for name in ("run", "learn", "run-of-all")}
    timed = {
        "before": timing(lambda: train(run_of(config, before, runs["run"]), registry), runs["run"]),
        "learned": timing(learned, runs["learn"]),
        "trained": timing(
            lambda: train(run_of(config, after, runs["run-of-all"]), full), runs["run-of-all"]
        ),
    }
    bundles = {
        "before": registry.open(1),
        "learned": registry.open(int(timed["learned"][0])),
        "trained": full.open(1),
    }
    measured = {name: measure(bundle, whole, parts.labels) for name, bundle in bundles.items()}
    quality, times = Table(COLUMNS), Table(TIMES)
    for scorer in measured["trained"]:
        base, most = measured["before"][scorer], measured["trained"][scorer]
        for name, values in measured.items():
            own = values[scorer]
            gains = [
                100 * (x - low) / (high - low) if name == "learned" and high > low else None
                for x, low, high in zip(own, base, most, strict=True)
            ]
            quality.add(scorer, name, *own, *gains, *timed[name][1:])
    for name, (_, seconds, cpu_seconds) in timed.items():
        times.add(name, seconds, cpu_seconds, 100 * seconds / timed["trained"][1])
    return quality, times


def run_of(config: TrainingConfig, corpus: Path, work: Path) -> Run:
    """Return a training run."""
    return Run(config, open_dataset(corpus), work)


def timing(do: Callable[[], int], folder: Path) -> tuple[int, float, float]:
    """Return what a run returns, its seconds, and its seconds of CPU time.

    Args:
        do: The run.
        folder: Of its work, which tells what stages took that were done before.
    """
    wall, cpu = time.perf_counter(), time.process_time()
    found = do()
    seconds = [time.perf_counter() - wall, time.process_time() - cpu]
    stages = [
        json.loads(line)
        for path in folder.rglob(STAGES_NAME)
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    kept = [sum(stage[name] for stage in stages) for name in ("wall_s", "cpu_s")]
    most = [max(pair) for pair in zip(seconds, kept, strict=True)]
    return found, most[0], most[1]


def write_corpus(
    whole: Dataset, folder: Path, is_trained: np.ndarray, hidden: Iterable[int], *, are_told: bool
) -> None:
    """Write some of the training documents and the dev split.

    Without the hidden labels, or with their names, but no alternative ones: feedback tells none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    new = set(hidden)
    left_out = set() if are_told else new
    texts = {
        label.id: {
            "name": label.name,
            "alternative_names": [] if row in new else list(label.alternative_names),
        }
        for row, label in enumerate(whole.labels)
        if row not in left_out
    }
    write_labels(folder / "labels.jsonl", list(texts), texts)
    ids = [label.id for label in whole.labels]
    for name in ("train", "dev"):
        split = whole.split(name)
        rows = enumerate(split)
        documents = [x for row, x in rows if name == "dev" or is_trained[row]]
        labels = [[ids[y] for y in x.labels if y not in left_out] for x in documents]
        write_documents(folder / f"{name}.jsonl", [x.text for x in documents], labels)


def write_feedback(whole: Dataset, parts: Parts, path: Path) -> None:
    """Write what a person would say of the documents that are held back."""
    hidden, labels, lines = set(parts.labels), list(whole.labels), []
    for is_held_back, document in zip(parts.is_held_back, whole.split("train"), strict=True):
        if is_held_back:
            known = [labels[row].id for row in document.labels if row not in hidden]
            new = [labels[row] for row in document.labels if row in hidden]
            proposed = [{"id": label.id, "name": label.name} for label in new]
            lines.append({"text": document.text, "added": known, "proposed": proposed})
    path.write_text(
        "".join(json.dumps(line) + "\n" for line in lines if any(list(line.values())[1:]))
    )


def measure(bundle: Bundle, whole: Dataset, hidden: list[int]) -> Mapping[str, list[float]]:
    """Return the metrics of every scorer, in percent, with all labels of the corpus."""
    predictor = Predictor(read_parts(bundle))
    column = {label.id: row for row, label in enumerate(whole.labels)}
    columns = np.array([column[label.id] for label in predictor.catalogue] + [NO_LABEL])
    rankings: dict[str, list[np.ndarray]] = {name: [] for name in predictor.scorers.names}
    for chunk in chunks(whole.split("test").texts()):
        batch = predictor.read(chunk)
        for name, found in rankings.items():
            ranked = predictor.rank(batch, RankingOptions(k=10, scorer=name)).labels
            found.append(columns[np.where(ranked == NO_LABEL, len(columns) - 1, ranked)])
    truth = whole.split("test").scan().labels
    weights = inverse_propensities(whole.catalogue.training_counts, len(list(whole.split("train"))))
    is_new = np.isin(np.arange(truth.shape[1]), hidden).astype(np.float32)
    of_new = (truth * is_new).tocsr()
    of_new.eliminate_zeros()
    rows = np.flatnonzero(np.diff(of_new.indptr))
    values = {}
    for name, found in rankings.items():
        labels = np.concatenate(found)
        joined = join_truth(labels, truth)
        values[name] = [
            100 * precision_at(joined, 5),
            100 * propensity_scored_precision_at(joined, 5, weights),
            100 * recall_at(join_truth(labels[rows], of_new[rows]), 10),
        ]
    return values


if __name__ == "__main__":
    main()
