"""Rows of a Longtail bundle on the leaderboard: each scorer, and the baselines that train nothing.

    longtail train DATA/eurlex57k --without-encoder --registry REGISTRY --work WORK
    python tests/bench/leaderboard/longtail_rows.py DATA/eurlex57k --registry REGISTRY --work WORK \
        --title "Longtail, no encoder" \
        --trained-with "longtail train DATA/eurlex57k --without-encoder"

A row a scorer; training costs are those of the whole run, which trains all scorers, from the
`stages.jsonl` of its folder. Scores become the probabilities of the bundle, and the threshold of
micro-F1 is the bundle's own, both fitted on dev.
"""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from row import BOARD, name_of, with_dev, write_row

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.registry import Registry
from longtail.models.kinds.storage import read_parts
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.models.scorers.calibration import probabilities_of
from longtail.models.scorers.tfidf import TfidfModel
from longtail.training.assessment.baselines import label_name_ranking, nearest_neighbour_ranking
from longtail.training.assessment.compare import in_columns_of, write_predictions
from longtail.training.data.chunks import chunks
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.runtime.run_log import read_stage_costs

WIDTH = 20
_WARM_UP = 20


def main() -> None:
    """Write the rows of a bundle, or those of the baselines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--registry", type=Path, required=True)
    parser.add_argument("--version", default="current")
    parser.add_argument("--work", type=Path, required=True, help="of the run that trained it")
    parser.add_argument("--title", required=True, help="of the rows, before the scorer's name")
    parser.add_argument("--trained-with", required=True, help="the command that trained it")
    parser.add_argument("--scorers", nargs="*", help="by default all of the bundle")
    parser.add_argument("--baselines", action="store_true", help="label names and neighbours too")
    parser.add_argument("--json", type=Path, default=BOARD, help="the leaderboard's file")
    chosen = parser.parse_args()
    bundle = Registry(chosen.registry).open(chosen.version)
    dataset = open_dataset(chosen.data, known=bundle.catalogue)
    parts = read_parts(bundle)
    predictor = Predictor(parts, default_scorer=bundle.manifest.default_scorer)
    version = bundle.manifest.longtail_version
    command = command_of(chosen)
    rankings = chosen.work / "leaderboard"
    rankings.mkdir(parents=True, exist_ok=True)
    for scorer in chosen.scorers or predictor.scorers.names:
        test = rankings / f"longtail-{scorer}.npz"
        milliseconds = write_ranking(predictor, bundle, dataset, scorer, test)
        is_default = " (default)" if scorer == predictor.scorers.default else ""
        about = {"name": f"{chosen.title}: {scorer}", "version": f"longtail {version}",
                 "settings": f"chosen on dev by the run{is_default}", "seeds": [0]}  # fmt: skip
        costs = training_costs(chosen.work) | {"milliseconds": milliseconds}
        write_row(
            chosen.json, dataset, test, None,
            about=about, costs=costs, command=command,
            threshold=bundle.manifest.thresholds.get(scorer),
        )  # fmt: skip
    if chosen.baselines:
        write_baselines(parts.sparse.tfidf, version, dataset, rankings, chosen.json, command)


def command_of(chosen: argparse.Namespace) -> str:
    """Return the command of the rows, with names in place of one machine's folders."""
    words = ["--title", chosen.title, "--trained-with", chosen.trained_with]
    words += ["--scorers", *chosen.scorers] if chosen.scorers else []
    words += ["--baselines"] if chosen.baselines else []
    return (
        f"{chosen.trained_with} --registry REGISTRY --work WORK; "
        f"python tests/bench/leaderboard/longtail_rows.py {name_of(chosen.data)} "
        f"--registry REGISTRY --work WORK {shlex.join(words)}"
    )


def write_ranking(
    predictor: Predictor, bundle: Bundle, dataset: Dataset, scorer: str, path: Path
) -> float:
    """Write a scorer's predictions for the test split; return CPU milliseconds a text."""
    options = RankingOptions(k=min(WIDTH, len(predictor.catalogue)), scorer=scorer)
    predictor.rank(predictor.read(["a text that compiles what is compiled"] * _WARM_UP), options)
    started = time.process_time()
    parts = [
        predictor.rank(predictor.read(texts), options)
        for texts in chunks(dataset.split("test").texts())
    ]
    seconds = time.process_time() - started
    ranking = Ranking.joined(parts)
    if scorer in predictor.parts.calibrations:
        counts = predictor.catalogue.training_counts[ranking.labels]
        scores = probabilities_of(predictor.parts.calibrations[scorer], ranking.scores, counts)
        ranking = Ranking(ranking.labels, scores.astype(np.float32))
    write(ranking, bundle, dataset, path)
    return 1000 * seconds / len(ranking.labels)


def write(ranking: Ranking, bundle: Bundle, dataset: Dataset, path: Path) -> None:
    """Write a ranking of the bundle's labels, numbered as the corpus lists them."""
    is_there = (ranking.labels != NO_LABEL) & ~np.isneginf(ranking.scores)
    kept = Ranking(
        np.where(is_there, ranking.labels, NO_LABEL), np.where(is_there, ranking.scores, -np.inf)
    )
    columns = in_columns_of(dataset.labels, bundle.catalogue, kept)
    write_predictions(path, columns, len(dataset.labels))


def training_costs(work: Path) -> dict[str, float | None]:
    """Return the CPU seconds of all stages of a run, and the largest of their peaks of memory."""
    stages = read_stage_costs(work)
    return {
        "training_seconds": sum(stage.cpu_s for stage in stages),
        "tuning_seconds": None,
        "memory_gib": max(stage.peak_rss_bytes for stage in stages) / 2**30,
    }


def baseline_rankings(
    tfidf: TfidfModel, dataset: Dataset, split: str
) -> Iterator[tuple[str, str, Ranking, float, float]]:
    """Rank by what trains nothing.

    Yields:
        Name, settings and ranking, and the CPU seconds of learning and of ranking.
    """
    learned = with_dev(dataset) if split == "dev" else dataset
    training, judged = learned.split("train"), list(learned.split(split).texts())
    started = time.process_time()
    features = tfidf.transform(training.texts())
    read = time.process_time()
    yield (
        "nearest neighbours", "30, summed cosines of tf-idf",
        nearest_neighbour_ranking(
            features, training.scan().labels, tfidf.transform(judged), WIDTH
        ),
        read - started, time.process_time() - read,
    )  # fmt: skip
    names = [f"{label.name} {label.description}".strip() for label in dataset.labels]
    started = time.process_time()
    found = label_name_ranking(judged, names, WIDTH, training.texts())
    yield (
        "label names", "cosine of tf-idf with the name; nothing is trained", found,
        0.0, time.process_time() - started,
    )  # fmt: skip


def write_baselines(
    tfidf: TfidfModel, version: str, dataset: Dataset, folder: Path, path: Path, command: str
) -> None:
    """Write the rows of what trains nothing; dev fits their probabilities, as everybody's."""
    dev = {name: found for name, _, found, _, _ in baseline_rankings(tfidf, dataset, "dev")}
    for name, settings, found, learning, ranking in baseline_rankings(tfidf, dataset, "test"):
        files = {}
        for split, each in (("dev", dev[name]), ("test", found)):
            files[split] = folder / f"{name.replace(' ', '-')}-{split}.npz"
            write_predictions(files[split], each, len(dataset.labels))
        costs = {"training_seconds": learning, "tuning_seconds": None, "memory_gib": None,
                 "milliseconds": 1000 * ranking / len(found.labels)}  # fmt: skip
        about = {"name": name, "version": f"longtail {version}",
                 "settings": settings, "seeds": []}  # fmt: skip
        write_row(
            path, dataset, files["test"], files["dev"], about=about, costs=costs, command=command
        )


if __name__ == "__main__":
    main()
