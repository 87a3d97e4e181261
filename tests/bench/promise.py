"""Are promises kept on new documents, and what does rarity gain? Random halves of a split.

    python tests/bench/promise.py REGISTRY DATA [--split dev] [--draws 200] [--json FILE]
    python tests/bench/promise.py REGISTRY DATA --measured test [--json FILE]

For each draw the split is halved: promises are found on one half and measured on the other, with
thresholds by band (`by band`), and with one rule for all labels (`one`), which keeps the promise
over all of them. `broken` is the share of draws in which fewer of the accepted labels are right
than promised. With `--measured` promises are found on the whole split and measured on another one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from machine import begin
from recording import Table, add_json_option, keep

from longtail.models.bundle.registry import Registry
from longtail.models.corpus.columns import RECOGNISED
from longtail.training.assessment.promised import answer_split
from longtail.training.assessment.untrained import open_as_trained
from longtail.training.evaluation.by_frequency import FREQUENCY_BINS
from longtail.training.fitted.fitting import AnsweredDocuments
from longtail.training.fitted.promises import (
    BAND_STARTS,
    KeptPromise,
    accepted_labels,
    fit_promise,
    measure_promise,
)

BY_BAND, ONE = "by band", "one"
NAMES = (*FREQUENCY_BINS, "all")


@dataclass(frozen=True)
class Draws:
    """What a kind of rule reached in the draws, by band and over all labels.

    Attributes:
        right: Right accepted labels of the other half; a column a band, the last one all.
        accepted: Accepted ones.
        true: Labels of the other half's documents.
    """

    right: np.ndarray
    accepted: np.ndarray
    true: np.ndarray

    def rows(self, level: float) -> Iterator[dict[str, object]]:
        """Yield what became of each band."""
        for place, name in enumerate(NAMES):
            made = self.accepted[:, place] > 0
            precision = self.right[made, place] / self.accepted[made, place]
            yield {
                "band": name,
                "made": float(made.mean()),
                "broken": float((self.right[:, place] < level * self.accepted[:, place]).mean()),
                "kept": float((precision >= level).mean()) if made.any() else None,
                "precision": float(precision.mean()) if made.any() else None,
                "accepted": float(self.accepted[:, place].mean()),
                "found": float(self.right[:, place].sum() / max(1, self.true[:, place].sum())),
            }


def summary(rows: list[dict[str, Any]]) -> Table:
    """Print and return a table: for each promise and rule the worst band, and what is accepted."""
    shares = dict.fromkeys(("broken, %", "right, %", "found, %"), ".1f")
    table = Table({"promise": "", "rule": "", "worst band": "", **shares})
    for (level, rule), some in groupby(rows, lambda row: (row["level"], row["rule"])):
        bands = list(some)
        worst = max(bands[:-1], key=lambda row: float(row["broken"]))
        cells = (worst["broken"], bands[-1]["precision"], bands[-1]["found"])
        percent = [None if each is None else 100 * each for each in cells]
        table.add(f"{100 * level:g} %", rule, worst["band"] if worst["broken"] else None, *percent)
    return table


def kept_table(kept: list[KeptPromise]) -> Table:
    """Print and return a table: what each promise lets through, by band."""
    columns = {"promise": "", "training documents": "", "accepted": ""}
    columns |= {"found, %": ".1f", "right, %": ".1f", "95 %": "", "kept": "", "texts, %": ".1f"}
    table = Table(columns)
    for each in kept:
        served = 100 * each.num_served / each.num_documents
        for name, band in each.bands.items():
            if band.share is None:
                continue
            table.add(
                each.promise, name, band.num_accepted, 100 * band.num_right / max(1, band.num_true),
                100 * band.share, f"{100 * band.lower:.1f} to {100 * band.upper:.1f}",
                band.verdict(each.level), served if name == "all" else None,
            )  # fmt: skip
    return table


def measured(
    marks: np.ndarray, numbers: np.ndarray, documents: AnsweredDocuments
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return right, accepted and true labels by band of rarity, and of all."""
    of_labels = numbers[documents.labels]
    width = len(FREQUENCY_BINS)
    is_right = marks & documents.is_right
    sums = [np.bincount(of_labels[each], minlength=width) for each in (is_right, marks)]
    sums.append(np.bincount(numbers[documents.truth.indices], minlength=width))
    right, accepted, true = (np.append(each, each.sum()) for each in sums)
    return right, accepted, true


def of_documents(documents: AnsweredDocuments, rows: np.ndarray) -> AnsweredDocuments:
    """Return some of the documents."""
    names = ("labels", "probabilities", "is_like", "truth")
    return replace(documents, **{name: getattr(documents, name)[rows] for name in names})


def draw(
    documents: AnsweredDocuments, scorer: str, level: float, confidence: float, num_draws: int
) -> dict[str, Draws]:
    """Return what each kind of rule reached."""
    rng = np.random.default_rng(0)
    size = len(documents.labels)
    numbers = np.searchsorted(BAND_STARTS, documents.counts, side="right") - 1
    found: dict[str, list[tuple[np.ndarray, ...]]] = {name: [] for name in (BY_BAND, ONE)}
    for _ in range(num_draws):
        order = rng.permutation(size)
        first, second = (of_documents(documents, np.sort(x)) for x in np.split(order, [size // 2]))
        by_band = fit_promise(first, scorer, "precision", level, confidence)
        one = fit_promise(first, scorer, "precision", level, confidence, band_starts=[0])
        for name, rule in ((BY_BAND, by_band), (ONE, one)):
            found[name].append(measured(accepted_labels(second, rule), numbers, second))
    return {
        name: Draws(*(np.stack(each) for each in zip(*rows, strict=True)))
        for name, rows in found.items()
    }


def main() -> None:
    """Print how often each promise is kept on the other half, and what is accepted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--version", default="current")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--confidence", type=float, default=0.9)
    parser.add_argument("--levels", type=float, nargs="+", default=[0.8, 0.9, 0.95])
    parser.add_argument("--measured", metavar="SPLIT")
    add_json_option(parser)
    chosen = begin(parser)
    bundle = Registry(chosen.registry).open(chosen.version)
    dataset = open_as_trained(chosen.data, RECOGNISED, [bundle], bundle.catalogue)
    scorer = bundle.manifest.default_scorer
    documents = answer_split(bundle, dataset, chosen.split, scorer)
    about = {"model": bundle.manifest.digest, "data": dataset.fingerprint, "scorer": scorer}
    if chosen.measured is not None:
        others = answer_split(bundle, dataset, chosen.measured, scorer)
        promises = [
            fit_promise(documents, scorer, "precision", level, chosen.confidence)
            for level in chosen.levels
        ]
        table = kept_table([measure_promise(others, x) for x in promises if x.can_accept])
        splits = {"split": chosen.measured, "found_on": chosen.split}
        keep(chosen.json, {**about, **splits, "documents": len(others.labels), "promises": table})
        return
    results = []
    for level in chosen.levels:
        for rule, each in draw(documents, scorer, level, chosen.confidence, chosen.draws).items():
            results += [{"level": level, "rule": rule, **row} for row in each.rows(level)]
    figures = {
        **about, "split": chosen.split, "documents": len(documents.labels), "draws": chosen.draws,
        "confidence": chosen.confidence, "rows": results, "summary": summary(results),
    }  # fmt: skip
    keep(chosen.json, figures, seeds=[0])


if __name__ == "__main__":
    main()
