"""How many labels a text needs: the threshold "auto" beside one threshold and one number for all.

The threshold is the bundle's, and the number is the best one on dev; both serve micro-F1.

    python -m tests.bench.label_counts REGISTRY DATA [--split test] [--json FILE]
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from longtail.models.bundle.registry import Registry
from longtail.models.kinds.storage import read_parts
from longtail.models.options import AUTO_K
from longtail.training.assessment.promised import answer_split
from longtail.training.assessment.untrained import open_as_trained
from longtail.training.calibration.promises import AnsweredDocuments
from longtail.training.evaluation.record import deliver
from longtail.training.evaluation.tables import markdown_table
from longtail.training.formats.options import RECOGNISED


def measured(documents: AnsweredDocuments, is_answered: np.ndarray) -> dict[str, float]:
    """Return micro-F1, the mean F1 of documents with labels, in percent, and labels a document."""
    num_true = np.diff(documents.truth.indptr)
    right = (is_answered & documents.is_right).sum(axis=1)
    sizes = is_answered.sum(axis=1) + num_true
    has_labels = num_true > 0
    return {
        "micro-F1": float(200 * right.sum() / sizes.sum()),
        "document F1": float(200 * (right[has_labels] / sizes[has_labels]).mean()),
        "labels": float(is_answered.sum(axis=1).mean()),
    }


def first(documents: AnsweredDocuments, k: int) -> np.ndarray:
    """Return which labels are the k best ones of their document."""
    return (documents.labels >= 0) & (np.arange(documents.labels.shape[1]) < k)


def main(
    registry: Path,
    data: Path,
    split: str = "test",
    version: str = "current",
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    """Print what each way of choosing labels reaches."""
    bundle = Registry(registry).open(version)
    dataset = open_as_trained(data, RECOGNISED, [bundle], bundle.catalogue)
    scorer = bundle.manifest.default_scorer
    threshold = bundle.manifest.thresholds[scorer]
    dev = answer_split(bundle, dataset, "dev", scorer)
    documents = answer_split(bundle, dataset, split, scorer)
    best_k = max(range(1, 51), key=lambda k: measured(dev, first(dev, k))["micro-F1"])
    rule = read_parts(bundle).label_counts[scorer]
    own = rule.of_texts(documents.probabilities[:, :AUTO_K])
    is_near = first(documents, AUTO_K)
    rows = {
        "auto": measured(documents, is_near & (documents.probabilities >= own[:, None])),
        f"threshold {threshold:.3f}": measured(documents, documents.probabilities >= threshold),
        f"k {best_k}": measured(documents, first(documents, best_k)),
    }
    names = ["choice", *rows["auto"]]
    found = [[name, *(round(value, 2) for value in row.values())] for name, row in rows.items()]
    table = {"columns": [{"name": name, "digits": 2} for name in names], "rows": found}
    cells = [[str(cell) for cell in row] for row in found]
    figures = {
        "model": bundle.manifest.digest, "data": dataset.fingerprint, "split": split,
        "scorer": scorer, "documents": len(documents.labels), "choices": table,
    }  # fmt: skip
    print(deliver(json_file, figures, markdown_table(names, cells)))


if __name__ == "__main__":
    typer.run(main)
