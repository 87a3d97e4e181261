"""All published figures of Longtail, measured again: a row of the leaderboard for each mode.

A row has the figures of the default scorer on test, its promises, and each scorer alone; that
without an encoder has what the blend loses without one of its scorers (`hidden_labels.py`), too.

    make evidence                                          # all of them: hours; it resumes
    python tests/bench/leaderboard/evidence.py DATA/tate   # of one corpus
    python tests/bench/leaderboard/evidence.py DATA/eurlex57k --mode phrases --work WORK

A row that this code has measured (`code_digest`) is left as it is. Training uses all cores; answers
are timed on one. Rows of other programs and of older code stay as they are; `--outdated` marks
those of Longtail that this code did not measure as older. `python docs/render.py` fills the pages.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy and PyTorch are imported

import argparse
import itertools
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import matplotlib.ticker
import numpy as np
from board import check_corpus, key_of, read_rows, write_rows
from jaxtyping import Float32, Int64
from row import BOARD, name_of, write_row
from scipy.sparse import csr_array

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "bench")]

import hidden_labels

from docs.generation.leaderboard import (
    BANDS,
    HISTORY,
    OURS,
    code_digest,
    columns_of,
    read_sets,
)
from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.registry import Registry
from longtail.models.corpus.columns import RECOGNISED
from longtail.models.errors import DataError, LongtailError
from longtail.models.fitted.promises import PRECISION_PROMISE
from longtail.models.metrics import join_truth
from longtail.models.options import RankingOptions
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.models.scorers.calibration import probabilities_of
from longtail.training.assessment.compare import in_columns_of, write_predictions
from longtail.training.assessment.promised import answer_split
from longtail.training.assessment.truth import truth_of
from longtail.training.assessment.untrained import open_as_trained
from longtail.training.calibration.reliability import calibration_error
from longtail.training.configuration.run import read_config
from longtail.training.data.chunks import chunks
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.evaluation.by_frequency import (
    ALL_LABELS,
    FREQUENCY_BINS,
    TAIL_BIN,
    ZERO_SHOT_BIN,
    evaluate,
)
from longtail.training.fitted.fitting import AnsweredDocuments
from longtail.training.fitted.promises import fit_promise, measure_promise
from longtail.training.runtime.run_log import read_stage_costs

CORPORA = ("demo_data", "tate", "eurlex57k", "library-keywords")
_PHRASES = "tests/bench/leaderboard/phrases.yaml"
MODES = {
    "no encoder": ("Longtail, no encoder", ["--without-encoder"]),
    "phrases": ("Longtail, phrases", ["--without-encoder", "--config", _PHRASES]),
    "default": ("Longtail", []),
    "fine-tuned": ("Longtail, fine-tuned", ["--config", "full"]),
    "papers": ("Longtail, the papers' scorers", ["--config", "papers"]),
}
"""By mode: the name of its row, and the options of `longtail train`."""
MEASURED_ON = {
    "phrases": ("eurlex57k",),
    "fine-tuned": ("demo_data",),
    "papers": ("demo_data",),
}
"""Corpora of a mode, unless both are asked for: of long texts, and without hours or a GPU."""
_DRAWN = {
    "Longtail, no encoder": ("Longtail, without an encoder", "#c1272d"),
    "Annif, ensemble with MLLM": ("Annif, ensemble", "#0b6e4f"),
    "omikuji, Bonsai": ("omikuji, Bonsai", "#1f5fa8"),
    "PECOS XR-Linear": ("PECOS XR-Linear", "#8a5a00"),
    "napkinXC, PLT": ("napkinXC, PLT", "#6b4c9a"),
}
WIDTH = 20
PROMISED = (0.7, 0.8, 0.9)
"""Shares of right labels that are promised."""
CONFIDENCE = 0.9
MOST_OTHERWISE = 6000
_PLACES, _NUM_DRAWS = 5, 20
_KS = (1, 5, 10)
_FOR_RARE_LABELS = (
    RankingOptions(k=max(_KS), aim="propensity"),
    RankingOptions(k=max(_KS), tail_dial=0.4),
)
_NUM_TIMED, _WARM_UP, _ROUNDS = 200, 20, 3
_OF_THE_TRIAL = ("label vectors", "document vectors-trial")


def main() -> None:
    """Train and measure all that is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="*", help="corpora; by default all of them")
    parser.add_argument("--mode", choices=MODES, action="append", help="by default all of them")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "evidence")
    parser.add_argument("--json", type=Path, default=BOARD, help="the leaderboard's file")
    parser.add_argument("--outdated", action="store_true", help="mark outdated rows, no more")
    chosen = parser.parse_args()
    folder = Path(os.environ.get("LONGTAIL_DATA", ROOT / ".." / "shared" / "data"))
    corpora = chosen.data or [ROOT / "training" / CORPORA[0], *(folder / x for x in CORPORA[1:])]
    wanted = [
        (data.resolve(), mode)
        for data in corpora
        for mode in chosen.mode or MODES
        if (chosen.data and chosen.mode) or data.name in MEASURED_ON.get(mode, [data.name])
    ]
    try:
        if chosen.outdated:
            mark_outdated(chosen.json)
        else:
            measure_missing(wanted, chosen.work.resolve(), chosen.json.resolve())
    except LongtailError as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit("Interrupted; the same command resumes the work.")


def measure_missing(wanted: Sequence[tuple[Path, str]], work: Path, board: Path) -> None:
    """Measure the corpora and modes that this code has not measured, and draw the picture."""
    fingerprints = {data: fingerprint_of(data, board) for data, _ in wanted}
    missing = [each for each in wanted if not is_measured(board, *each)]
    print(f"Measured with this code: {len(wanted) - len(missing)} of {len(wanted)} rows.")
    for data, mode in missing:
        print(f"  {data.name}, {mode}: {expected_minutes(board, data, mode)}", flush=True)
    for data, mode in missing:
        of_mode = work / f"{data.name}-{mode.replace(' ', '-')}"
        measure(data, mode, of_mode / f"{code_digest()}-{fingerprints[data][:12]}", board)
    if board == BOARD.resolve():
        draw(board, board.with_name("evidence.png"))


def fingerprint_of(data: Path, board: Path) -> str:
    """Return the fingerprint of a corpus that can be measured.

    Raises:
        ConfigError: The board has rows of another corpus under the name of its folder.
        DataError: It can't be read, or has no test split.
    """
    dataset = open_dataset(data)
    dataset.split("test")
    check_corpus(board, data.name, dataset.fingerprint)
    return dataset.fingerprint


def is_measured(board: Path, data: Path, mode: str) -> bool:
    """Whether this code has measured the row."""
    return any(
        row["figures"].get("code") == code_digest()
        for row in read_rows(board)
        if key_of(row) == (data.name, MODES[mode][0])
    )


def expected_minutes(board: Path, data: Path, mode: str) -> str:
    """Return how long a row took when it was last measured."""
    for row in read_rows(board):
        seconds = row["figures"]["costs"].get("measured_seconds")
        if seconds and key_of(row) == (data.name, MODES[mode][0]):
            return f"{seconds / 60:.0f} minutes when it was last measured"
    return "not measured yet"


def mark_outdated(path: Path) -> None:
    """Mark the rows of Longtail that this code did not measure as those of older code."""
    rows = read_rows(path)
    for row in rows:
        figures = row["figures"]
        if figures.get("of") == OURS and figures["code"] != code_digest():
            figures["of"] = HISTORY
            print(f"{row['set']}, {figures['name']}: {row['commit']}")
    write_rows(path, rows)


def measure(data: Path, mode: str, work: Path, board: Path) -> None:
    """Train one mode on a corpus, and write the row of its default scorer.

    Raises:
        DataError: The model has no probabilities.
    """
    name, options = MODES[mode]
    registry, run = work / "registry", work / "run"
    if not Registry(registry).versions():
        command = [sys.executable, "-m", "longtail", "train", str(data), *options]
        many = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
        places = ["--registry", registry, "--work", run]
        if subprocess.run([*command, *places], check=False, cwd=ROOT, env=many).returncode:
            sys.exit(f"{data.name}, {mode}: not measured; the training above says why")
    started = time.time()
    bundle = Registry(registry).open("current")
    dataset = open_dataset(data, known=bundle.catalogue)
    predictor = Predictor.of_bundle(bundle)
    scorer = bundle.manifest.default_scorer
    if scorer not in predictor.parts.calibrations:
        raise DataError(
            f"{data}: too few documents are held out for probabilities, which a row has; give "
            "the corpus more documents, or a dev split"
        )
    test = run / "test.npz"
    in_batches, ranking = rank_test(predictor, dataset, scorer)
    columns = in_columns_of(dataset.labels, bundle.catalogue, ranking)
    write_predictions(test, columns, len(dataset.labels))
    truth, _ = truth_of(bundle.catalogue, dataset, dataset.split("test").scan().labels)
    counts = bundle.catalogue.training_counts
    texts = [*itertools.islice(dataset.split("test").texts(), _NUM_TIMED + _WARM_UP)]
    costs = training_costs(run) | {
        "milliseconds": in_batches,
        "title_milliseconds": one_by_one(predictor, [x.strip().split("\n")[0] for x in texts]),
        "document_milliseconds": one_by_one(predictor, texts),
        "bundle_mib": sum(x.stat().st_size for x in bundle.folder.rglob("*")) / 2**20,
    }
    trained = shlex.join(["longtail", "train", name_of(data), *options])
    about = {
        "name": name,
        "of": OURS,
        "code": code_digest(),
        "version": f"longtail {bundle.manifest.longtail_version}",
        "settings": f"{trained}: {scorer}",
        "calibration": calibration_by_band(ranking, truth, counts),
        "otherwise": ranked_otherwise(predictor, dataset, truth),
        "promises": promises_of(bundle, data, scorer),
        "seeds": [0],
    }
    if mode == "no encoder":
        about["parts"] = parts_of_blend(data, run)
    costs["measured_seconds"] = costs["training_wall_seconds"] + time.time() - started
    command = f"python tests/bench/leaderboard/evidence.py {name_of(data)} --mode '{mode}'"
    threshold = bundle.manifest.thresholds.get(scorer)
    write_row(
        board, dataset, test, None,
        about=about, costs=costs, command=command, threshold=threshold,
    )  # fmt: skip


def one_by_one(predictor: Predictor, texts: Sequence[str]) -> float:
    """Return the CPU milliseconds of a text alone, from text to labels: the median of the rounds.

    The first texts are not timed.
    """
    for text in texts[:_WARM_UP]:
        predictor.predict([text], k=10)
    timed, times = texts[_WARM_UP:], [time.process_time()]
    for _ in range(_ROUNDS):
        for text in timed:
            predictor.predict([text], k=10)
        times.append(time.process_time())
    return 1000 * float(np.median(np.diff(times))) / max(1, len(timed))


def rank_test(predictor: Predictor, dataset: Dataset, scorer: str) -> tuple[float, Ranking]:
    """Return CPU milliseconds a text of the test split, and its labels with probabilities."""
    options = RankingOptions(k=min(WIDTH, len(predictor.catalogue)), scorer=scorer)
    predictor.rank(predictor.read(["a text that compiles what is compiled"] * _WARM_UP), options)
    started = time.process_time()
    found = ranked(predictor, dataset.split("test").texts(), options)
    seconds = time.process_time() - started
    counts = predictor.catalogue.training_counts[found.labels]
    scores = probabilities_of(predictor.parts.calibrations[scorer], found.scores, counts)
    is_there = (found.labels != NO_LABEL) & ~np.isneginf(found.scores)
    ranking = Ranking(
        np.where(is_there, found.labels, NO_LABEL),
        np.where(is_there, scores, -np.inf).astype(np.float32),
    )
    return 1000 * seconds / len(found.labels), ranking


def ranked(predictor: Predictor, texts: Iterable[str], options: RankingOptions) -> Ranking:
    """Return the first labels of texts, with scores."""
    parts = [predictor.rank(predictor.read(some), options) for some in chunks(texts)]
    return Ranking.joined(parts)


def ranked_otherwise(
    predictor: Predictor, dataset: Dataset, truth: Float32[csr_array, "document label"]
) -> dict[str, dict[str, float | None]]:
    """Return measures of each scorer by itself, and of what ranks for rare labels.

    The first `MOST_OTHERWISE` test documents are ranked.
    """
    options = {
        f"`{name}`": RankingOptions(k=max(_KS), scorer=name) for name in predictor.scorers.names
    }
    options |= {x.ranked_by: x for x in _FOR_RARE_LABELS}
    texts = [*itertools.islice(dataset.split("test").texts(), MOST_OTHERWISE)]
    rankings = {name: ranked(predictor, texts, x) for name, x in options.items()}
    counts, size = predictor.catalogue.training_counts, dataset.split("train").scan().labels.shape
    found = evaluate(rankings, csr_array(truth[: len(texts)]), counts, size[0], _KS).scorers
    return {
        name: {
            **{measure: of[ALL_LABELS].values[measure] for measure in ("P@1", "P@5", "PSP@5")},
            "macro-F1@5 (1-9)": of[TAIL_BIN].values.get("macro-F1@5"),
            "R@10 (0)": of[ZERO_SHOT_BIN].values.get("R@10"),
        }
        for name, of in found.items()
    }


def promises_of(bundle: Bundle, data: Path, scorer: str) -> dict[str, dict[str, float]]:
    """Return what promises that are found on dev let through on test, over all labels.

    Where there is no dev split they are found on one half of test and measured on the other.
    """
    dataset = open_as_trained(data, RECOGNISED, [bundle], bundle.catalogue)
    test = answer_split(bundle, dataset, "test", scorer)
    if "dev" in dataset.split_names:
        dev = answer_split(bundle, dataset, "dev", scorer)
    else:
        halves = np.array_split(np.random.default_rng(0).permutation(len(test.labels)), 2)
        dev, test = (some_documents(test, np.sort(half)) for half in halves)
    promises = [
        fit_promise(dev, scorer, PRECISION_PROMISE, level, CONFIDENCE) for level in PROMISED
    ]
    found = {}
    for kept in (measure_promise(test, each) for each in promises if each.can_accept):
        band = kept.bands[ALL_LABELS]
        found[kept.promise] = {
            "found": band.found,
            "right": band.share,
            "lower": band.lower,
            "upper": band.upper,
            "texts": kept.num_served / kept.num_documents,
        }
    return found


def some_documents(documents: AnsweredDocuments, rows: Int64[np.ndarray, row]) -> AnsweredDocuments:
    """Return some of the documents."""
    names = ("labels", "probabilities", "is_like", "truth")
    return replace(documents, **{name: getattr(documents, name)[rows] for name in names})


def parts_of_blend(data: Path, run: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Return what scorers and the blend find on dev, and what it gains without one of them."""
    work = run.with_name("hidden")
    shutil.copytree(run, work, dirs_exist_ok=True)  # what training kept is not trained again
    found, dev = hidden_labels.trained(open_dataset(data), read_config(None), work)
    whole = ModelParts(found.catalogue, found.sparse, None, found.models)
    is_unseen, num_documents = found.catalogue.training_counts == 0, found.truth.shape[0]
    seen = hidden_labels.measured(whole, dev, is_unseen, num_documents)
    parts = hidden_labels.differences({name: [values] for name, values in seen.items()})
    for name, found_hidden in hidden_labels.hidden_differences(found, dev).items():
        parts[name] = {
            **{measure.replace("hidden", "0"): x for measure, x in parts[name].items()},
            **{x: found_hidden[x] for x in hidden_labels.MEASURES[:1] if x in found_hidden},
        }
    return parts


def calibration_by_band(
    ranking: Ranking, truth: Float32[csr_array, "document label"], counts: Int64[np.ndarray, label]
) -> dict[str, dict[str, float]]:
    """Return what the first five labels of each document are by band of their training documents.

    Returns:
        By band: the share that is right, the mean probability, its expected calibration error, and
        the mean error of as many labels whose probabilities are true.
    """
    joined = join_truth(ranking.labels[:, :_PLACES], truth)
    of_labels = np.where(joined.labels == NO_LABEL, -1, counts[joined.labels])
    probabilities, rng = ranking.scores[:, :_PLACES].astype(np.float64), np.random.default_rng(0)
    found = {}
    for band, (least, most) in FREQUENCY_BINS.items():
        is_in = (of_labels >= least) & (of_labels <= (np.inf if most is None else most))
        if not is_in.any():
            continue
        p, is_right = probabilities[is_in], joined.is_hit[is_in]
        drawn = [calibration_error(p, rng.random(len(p)) < p) for _ in range(_NUM_DRAWS)]
        found[band] = {
            "right": float(is_right.mean()),
            "said": float(p.mean()),
            "ECE": calibration_error(p, is_right),
            "chance": float(np.mean(drawn)),
        }
    return found


def training_costs(run: Path) -> dict[str, Any]:
    """Return the seconds of all stages of a run, and the largest of their peaks of memory.

    The encoder's trial has the seconds of the stages within it.
    """
    stages = read_stage_costs(run)
    if any(stage.stage == "encoder trial" for stage in stages):
        stages = [stage for stage in stages if stage.stage not in _OF_THE_TRIAL]
    return {
        "training_seconds": sum(stage.cpu_s for stage in stages),
        "training_wall_seconds": sum(stage.wall_s for stage in stages),
        "tuning_seconds": None,
        "memory_gib": max(stage.peak_rss_bytes for stage in stages) / 2**30,
    }


def draw(board: Path, path: Path) -> None:
    """Draw recall by how rare labels are, and quality by cost, of Longtail and other programs."""
    sets = read_sets(board)
    figure, (rare, *costs) = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    for name, (title, color) in _DRAWN.items():
        rows = {x: found[0] for x in sets if (found := [y for y in sets[x] if is_named(y, name)])}
        if "eurlex57k" in rows:
            shown = columns_of(rows["eurlex57k"])
            recalls = [shown[f"R@10 ({band})"] for band in BANDS]
            rare.plot(BANDS, recalls, marker="o", color=color, label=title)
        for axes, corpus in zip(costs, ("eurlex57k", "library-keywords"), strict=True):
            found = columns_of(rows[corpus]) if corpus in rows else {}
            if found.get("a text, CPU ms") is not None:
                axes.plot(found["a text, CPU ms"], found["P@5"], "o", color=color, markersize=9)
    rare.set(
        title="EURLEX57K: labels found among ten", ylim=0,
        xlabel="training documents of the label", ylabel="recall, %",
    )  # fmt: skip
    rare.legend(frameon=False, fontsize=8)
    for axes, corpus in zip(costs, ("EURLEX57K", "library-keywords"), strict=True):
        axes.set(xscale="log", xlim=(0.9, 35), xlabel="a text, ms of one core", ylabel="P@5, %")
        axes.set_xticks([1, 3, 10, 30], ["1", "3", "10", "30"], minor=False)
        axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        axes.set_title(f"{corpus}: quality and cost")
    for axes in (rare, *costs):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def is_named(row: dict[str, Any], name: str) -> bool:
    """Whether a row has a name."""
    return bool(row["figures"]["name"] == name)


if __name__ == "__main__":
    main()
