"""Time and memory of `cross_validate(LongtailClassifier(...))` on a corpus.

    python tests/bench/cross_validation.py <folder of tate> --json cross-validation.json

The training documents are cross-validated without an encoder, the labels as one sparse matrix.
Memory is the largest resident set of this process and that of its largest child, added.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

from machine import begin
from recording import Table, add_json_option, keep
from sklearn import config_context
from sklearn.model_selection import cross_validate

from longtail.training.data.dataset import open_dataset
from longtail.training.estimators.classifier import LongtailClassifier
from longtail.training.estimators.scorers import metrics_at_k

K = 5
METRICS = (f"P@{K}", f"nDCG@{K}", f"PSP@{K}")
COLUMNS = {
    "corpus": "", "fold": "", "documents": ",", "labels": ",", "fit, s": ".0f", "score, s": ".0f",
    "GiB": ".2f", **dict.fromkeys(METRICS, ".2f"),
}  # fmt: skip


def main() -> None:
    """Cross-validate; print the table, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--named", action="store_true", help="tell the estimator the labels' names")
    add_json_option(parser)
    options = begin(parser)
    dataset = open_dataset(options.corpus)
    training = dataset.split("train")
    truth, texts = training.scan().labels, list(training.texts())
    names = {i: label.name for i, label in enumerate(dataset.labels)} if options.named else None
    started = time.monotonic()
    with config_context(skip_parameter_validation=True):  # which wants a dense y
        found = cross_validate(
            LongtailClassifier(label_texts=names), texts, truth,
            cv=options.folds, scoring=metrics_at_k(K), error_score="raise",
        )  # fmt: skip
    seconds, gib = time.monotonic() - started, peak_gib()
    table = Table(COLUMNS)
    for fold in range(options.folds):
        shares = [100 * found[f"test_{name}"][fold] for name in METRICS]
        times = found["fit_time"][fold], found["score_time"][fold]
        table.add(options.corpus.name, fold, len(texts), truth.shape[1], *times, gib, *shares)
    print(f"{seconds:.0f} s in all, {gib:.2f} GiB")
    keep(options.json, {"cross-validation": table}, seeds=[0])


def peak_gib() -> float:
    """Return the largest resident set of this process plus that of its largest child."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_maxrss for usage in usages) / 2**20


if __name__ == "__main__":
    main()
