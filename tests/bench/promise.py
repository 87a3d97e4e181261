"""Are promises kept on new documents, and what does rarity gain? Random halves of a split.

For each of many draws the split is halved: promises are found on one half and measured on the
other, with thresholds by band (`by band`), and with one rule for all labels, which keeps the
promise over all of them (`one`). That one is also raised until the precision of every band on the
first half is not below the promise (`one, all bands`), which guarantees nothing. With `by label` a
label of enough documents has a threshold of its own, which is safe for it alone, and the bands hold
the other labels; these and those share the error equally, and so do the labels.

`made` is the share of draws with accepted labels, `broken` that of draws in which fewer of them are
right than promised (the guarantee is about this one), `kept` the share of the others among `made`.

    python -m tests.bench.promise REGISTRY DATA [--split dev] [--draws 200] [--json FILE]

With `--measured test` promises are found on the whole split and measured on another one, once.

    python -m tests.bench.promise REGISTRY DATA --measured test [--json FILE]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from longtail.models.bundle.registry import Registry
from longtail.models.corpus.columns import RECOGNISED
from longtail.models.fitted.promises import BandRule, Promise
from longtail.training.assessment.promised import answer_split
from longtail.training.assessment.untrained import open_as_trained
from longtail.training.evaluation.by_frequency import FREQUENCY_BINS
from longtail.training.evaluation.record import deliver, markdown_table
from longtail.training.fitted.fitting import AnsweredDocuments
from longtail.training.fitted.promises import (
    BAND_STARTS,
    KeptPromise,
    accepted_labels,
    fit_promise,
    measure_promise,
    safe_thresholds,
)

BY_BAND, BY_LABEL, ONE, ONE_FOR_ALL = "by band", "by label", "one", "one, all bands"
RULES = (BY_BAND, BY_LABEL, ONE, ONE_FOR_ALL)
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


def summary(rows: list[dict[str, Any]]) -> dict[str, object]:
    """Return a table: of each promise and rule the worst band, and what is accepted in all."""
    found = []
    for (level, rule), some in groupby(rows, lambda row: (row["level"], row["rule"])):
        bands = list(some)
        worst = max(bands[:-1], key=lambda row: float(row["broken"]))
        figures = [worst["broken"], bands[-1]["precision"], bands[-1]["found"]]
        shares = [None if each is None else round(100 * each, 2) for each in figures]
        found.append([f"{100 * level:g} %", rule, worst["band"] if shares[0] else None, *shares])
    names = {"broken, %": 1, "right, %": 1, "found, %": 1}
    columns: list[dict[str, object]] = [{"name": x} for x in ("promise", "rule", "worst band")]
    columns += [{"name": name, "digits": digits} for name, digits in names.items()]
    return {"columns": columns, "rows": found}


def kept_table(kept: list[KeptPromise]) -> dict[str, object]:
    """Return a table: what each promise lets through, by band."""
    rows = []
    for each in kept:
        for name, band in each.bands.items():
            if band.share is None:
                continue
            found = round(100 * band.num_right / max(1, band.num_true), 2)
            served = 100 * each.num_served / each.num_documents
            bounds = f"{100 * band.lower:.1f} to {100 * band.upper:.1f}"
            rows.append([
                each.promise, name, band.num_accepted, found, round(100 * band.share, 2), bounds,
                band.verdict(each.level), round(served, 2) if name == "all" else None,
            ])  # fmt: skip
    names = ("promise", "training documents", "accepted", "found, %", "right, %", "95 %", "kept")
    columns: list[dict[str, object]] = [{"name": x} for x in (*names, "texts, %")]
    for place in (3, 4, 7):
        columns[place]["digits"] = 1
    return {"columns": columns, "rows": rows}


def one_rule(promise: Promise, numbers: np.ndarray, documents: AnsweredDocuments) -> Promise:
    """Return the rule of one band raised until every band of rarity keeps the promise."""
    (rule,) = promise.bands
    for rise in np.arange(0, 8, 0.2):
        odds = np.array(rule.thresholds) / (1 - np.array(rule.thresholds)) * np.exp(rise)
        raised = replace(rule, thresholds=tuple((odds / (1 + odds)).tolist()))
        found = replace(promise, bands=(raised,))
        right, accepted, _ = measured(accepted_labels(documents, found), numbers, documents)
        if (right >= promise.level * accepted).all():
            return found
    return replace(promise, bands=(BandRule(0, (), refusal="no threshold"),))


def own_thresholds(documents: AnsweredDocuments, level: float, error: float) -> dict[int, float]:
    """Return safe thresholds of single labels, by label; 2 where none is safe.

    The labels are those that twice as many documents are expected to carry, by the documents of
    the training, as a threshold needs where all are right.
    """
    expected = documents.counts * (len(documents.labels) / documents.num_training_documents)
    most = np.sort(expected)[::-1]
    needed = 2 * np.log(error / np.arange(1, 1 + len(most))) / np.log(level)
    own = np.flatnonzero(expected >= needed[max(0, (most >= needed).sum() - 1)])
    found = {}
    for label in own.tolist():
        is_it = (documents.labels == label) & documents.is_like[:, None]
        of_label = documents.probabilities[is_it], documents.is_right[is_it]
        found[label] = min(safe_thresholds(*of_label, level, error / len(own)), default=2.0)
    return found


def accepted_by_label(
    first: AnsweredDocuments,
    second: AnsweredDocuments,
    numbers: np.ndarray,
    level: float,
    confidence: float,
) -> np.ndarray:
    """Return which labels of the second half are accepted with thresholds by label."""
    error = (1 - confidence) / 2
    own = own_thresholds(first, level, error)
    thresholds = np.full(len(numbers), 2.0)
    thresholds[list(own)] = list(own.values())
    others = [
        replace(half, labels=np.where(np.isin(half.labels, list(own)), -1, half.labels))
        for half in (first, second)
    ]
    of_bands = fit_promise(others[0], "", "precision", level, 1 - error)
    is_own = second.probabilities >= thresholds[second.labels]
    is_own &= (second.labels >= 0) & second.is_like[:, None]
    return is_own | accepted_labels(others[1], of_bands)


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
    found: dict[str, list[tuple[np.ndarray, ...]]] = {name: [] for name in RULES}
    for _ in range(num_draws):
        order = rng.permutation(size)
        first, second = (of_documents(documents, np.sort(x)) for x in np.split(order, [size // 2]))
        by_band = fit_promise(first, scorer, "precision", level, confidence)
        one = fit_promise(first, scorer, "precision", level, confidence, band_starts=[0])
        marks = {
            name: accepted_labels(second, rule)
            for name, rule in [
                (BY_BAND, by_band), (ONE, one), (ONE_FOR_ALL, one_rule(one, numbers, first)),
            ]
        }  # fmt: skip
        marks[BY_LABEL] = accepted_by_label(first, second, numbers, level, confidence)
        for name in RULES:
            found[name].append(measured(marks[name], numbers, second))
    return {
        name: Draws(*(np.stack(each) for each in zip(*rows, strict=True)))
        for name, rows in found.items()
    }


def main(
    registry: Path,
    data: Path,
    split: str = "dev",
    version: str = "current",
    draws: int = 200,
    confidence: float = 0.9,
    levels: Annotated[list[float], typer.Option("--level")] = [0.8, 0.9, 0.95],  # noqa: B006
    measured_on: Annotated[str | None, typer.Option("--measured")] = None,
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    """Print how often each band keeps each promise on the other half, and what is accepted."""
    bundle = Registry(registry).open(version)
    dataset = open_as_trained(data, RECOGNISED, [bundle], bundle.catalogue)
    scorer = bundle.manifest.default_scorer
    documents = answer_split(bundle, dataset, split, scorer)
    if measured_on is not None:
        others = answer_split(bundle, dataset, measured_on, scorer)
        found = [fit_promise(documents, scorer, "precision", x, confidence) for x in levels]
        kept = [measure_promise(others, each) for each in found if each.can_accept]
        table = kept_table(kept)
        figures = {
            "model": bundle.manifest.digest, "data": dataset.fingerprint, "split": measured_on,
            "scorer": scorer, "documents": len(others.labels), "found_on": split, "promises": table,
        }  # fmt: skip
        print(deliver(json_file, figures, "\n".join(map(str, kept))))
        return
    results = []
    for level in levels:
        for rule, each in draw(documents, scorer, level, confidence, draws).items():
            results += [{"level": level, "rule": rule, **row} for row in each.rows(level)]
    header = ["promise", "rule", "band", "made", "broken", "kept", "precision", "accepted", "found"]
    rows = [[_cell(value) for value in row.values()] for row in results]
    figures = {
        "model": bundle.manifest.digest, "data": dataset.fingerprint, "split": split,
        "scorer": scorer, "documents": len(documents.labels), "draws": draws,
        "confidence": confidence, "rows": results, "summary": summary(results),
    }  # fmt: skip
    print(deliver(json_file, figures, markdown_table(header, rows), seeds=[0]))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if value <= 1 else f"{value:.0f}"
    return "-" if value is None else str(value)


if __name__ == "__main__":
    typer.run(main)
