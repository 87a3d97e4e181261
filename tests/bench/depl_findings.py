"""The claims of DEPL that one trained model can decide, by its rankings of a test split.

    longtail evaluate DATA/eurlex57k --registry REGISTRY --predictions --output runs/eurlex-test
    python tests/bench/depl_findings.py runs/eurlex-test DATA/eurlex57k --json RECORD

`longtail experiment depl` trains each setting on its own, for which the demo is small enough; here
are the four claims that compare scorers of one model. Tests of Yang & Liu (1999), documents that
repeat another left out, corrected for their number (Holm). One seed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from machine import begin
from recording import Table, add_json_option, keep

from training.assessment.compare import compare_predictions
from training.assessment.predictions import PREDICTIONS_NAME
from training.data.dataset import Dataset, open_dataset
from training.experiments.depl.evidence import Difference, judge
from training.experiments.trials import Estimate

K = 5
CLAIMS = (
    ("DEPL beats the SVM (Figure 3)", "retrieval", "sparse", True),
    ("DEPL beats the classifier (Figure 4)", "retrieval", "classifier", True),
    ("DEPL beats DEPL+c (Figure 3)", "retrieval", "hybrid", True),
    ("DEPL+c beats DEPL (Table 5)", "hybrid", "retrieval", False),
)
"""In words; the better scorer, the other; whether on the labels with 1-9 training documents."""
_HERE = {"better": "holds", "worse": "contrary"}


def difference(
    folder: Path, dataset: Dataset, better: str, other: str, *, is_of_tail: bool
) -> Difference:
    """Return how far one scorer is ahead of another in points, tested both ways.

    Raises:
        SystemExit: There are too few labels to test on.
    """
    paths = [folder / PREDICTIONS_NAME / f"{scorer}.txt" for scorer in (better, other)]
    found = compare_predictions(paths[0], paths[1], dataset, "test", K)
    metric, band, test = "P", "all", "micro sign test"
    if is_of_tail:
        metric, band, test = "macro-F1", "1-9", "macro t-test"
    values = [
        found.evaluation.scorers[scorer][band].values[f"{metric}@{K}"] for scorer in (better, other)
    ]
    (tested,) = (x for x in found.tests if (x.name, x.labels) == (test, band))
    if tested.first is None or tested.second is None:
        raise SystemExit(f"{band} labels are too few to test on; take a larger corpus")
    ahead = Estimate((100 * (values[0] - values[1]),))
    return Difference(ahead, tested.first.p_value, tested.second.p_value)


def main() -> None:
    """Print the table, and keep it where asked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("evaluation", type=Path, help="folder of 'evaluate --predictions'")
    parser.add_argument("data", type=Path)
    add_json_option(parser)
    chosen = begin(parser)
    dataset = open_dataset(chosen.data)
    differences = [
        difference(chosen.evaluation, dataset, better, other, is_of_tail=is_of_tail)
        for _, better, other, is_of_tail in CLAIMS
    ]
    columns = ("finding", "by", "better", "than, nearest", "advantage", "seeds", "p",
               "p, corrected", "here")  # fmt: skip
    table = Table(dict.fromkeys(columns, "") | {"advantage": ".2f"})
    for (words, better, other, is_of_tail), found in zip(
        CLAIMS, judge(differences, is_expected=True), strict=True
    ):
        table.add(
            words, f"macro-F1@{K} (1-9)" if is_of_tail else f"P@{K}", f"`{better}`", f"`{other}`",
            found.difference.advantage.mean, 1, _shown(found.p_value), _shown(found.corrected),
            _HERE.get(found.verdict, found.verdict),
        )  # fmt: skip
    found_table = table.to_json()
    for row in found_table["rows"]:
        row[4] = {"mean": row[4], "digits": 2}  # as the other records of findings have it
    keep(chosen.json, {"findings": found_table}, seeds=[0])


def _shown(p_value: float | None) -> float | str | None:
    if p_value is None:
        return None
    return "< 0.001" if p_value < 0.001 else round(p_value, 4)


if __name__ == "__main__":
    main()
