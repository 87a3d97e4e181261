"""The claims of DEPL that one configuration can decide, by its rankings of a test split.

    longtail evaluate DATA/eurlex57k --registry REGISTRY --predictions --output runs/eurlex-test
    python tests/bench/depl_findings.py runs/eurlex-test DATA/eurlex57k --json RECORD
    python tests/bench/depl_findings.py runs/tate/{0,1,2} DATA/tate --json RECORD   # three seeds

`--svm runs/tate-defaults/{0,1,2}` takes the SVM from other runs than the other scorers.

`python -m research depl` trains each setting on its own, for which the demo is small enough; here
are the four claims that compare scorers of one model. Tests of Yang & Liu (1999), documents that
repeat another left out, corrected for their number (Holm). Of several seeds the largest p counts,
so that only what every seed says holds; how far apart the scorers are is the mean over seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from evaluated_runs import prediction_files, seeds_of
from machine import begin
from recording import Table, add_json_option, keep

from longtail.training.assessment.compare import compare_predictions
from longtail.training.data.dataset import Dataset, open_dataset
from research.experiments.depl.claims import verdict_here
from research.experiments.depl.evidence import Difference, judge
from research.experiments.trials import Estimate

K = 5
_SVM = "sparse"
CLAIMS = (
    ("DEPL beats the SVM (Figure 3)", "retrieval", _SVM, True),
    ("DEPL beats the classifier (Figure 4)", "retrieval", "classifier", True),
    ("DEPL beats DEPL+c (Figure 3)", "retrieval", "hybrid", True),
    ("DEPL+c beats DEPL (Table 5)", "hybrid", "retrieval", False),
)
"""In words; the better scorer, the other; whether on the labels with 1-9 training documents."""


def difference(
    files: Mapping[str, Sequence[Path]],
    dataset: Dataset,
    better: str,
    other: str,
    *,
    is_of_tail: bool,
) -> Difference:
    """Return how far one scorer is ahead of another in points, tested both ways.

    Args:
        files: Of predictions, by scorer, one of each seed.
        dataset: That they are of.
        better: The scorer that the paper has ahead.
        other: The one behind it.
        is_of_tail: Whether on the labels with 1-9 training documents, or on all.
    """
    ahead, p_better, p_worse = zip(
        *(
            _of_seed(first, second, dataset, is_of_tail=is_of_tail)
            for first, second in zip(files[better], files[other], strict=True)
        ),
        strict=True,
    )
    return Difference(Estimate(ahead), max(p_better), max(p_worse))


def _of_seed(
    better: Path, other: Path, dataset: Dataset, *, is_of_tail: bool
) -> tuple[float, float, float]:
    """Return by how many points one scorer is ahead, and p that it is and that it is behind.

    Raises:
        SystemExit: There are too few labels to test on.
    """
    found = compare_predictions(better, other, dataset, "test", K)
    metric, band, test = "P", "all", "micro sign test"
    if is_of_tail:
        metric, band, test = "macro-F1", "1-9", "macro t-test"
    values = [scores[band].values[f"{metric}@{K}"] for scores in found.evaluation.scorers.values()]
    (tested,) = (x for x in found.tests if (x.name, x.labels) == (test, band))
    if tested.first is None or tested.second is None:
        raise SystemExit(f"{band} labels are too few to test on; take a larger corpus")
    return 100 * (values[0] - values[1]), tested.first.p_value, tested.second.p_value


def main() -> None:
    """Print the table, and keep it where asked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument(
        "evaluation", type=Path, nargs="+", help="folder of 'evaluate --predictions' of each seed"
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", help="of these folders; else 0, 1, 2, ...")
    parser.add_argument(
        "--svm", type=Path, nargs="+", help="folders of such evaluations to take the SVM from"
    )
    add_json_option(parser)
    chosen = begin(parser)
    seeds, files = seeds_of(chosen.evaluation, chosen.seeds), prediction_files(chosen.evaluation)
    if chosen.svm is not None:
        of_svm = prediction_files(chosen.svm)
        if len(chosen.svm) != len(seeds) or _SVM not in of_svm:
            parser.error(f"--svm: give folders with predictions of {_SVM}, one of each seed")
        files[_SVM] = of_svm[_SVM]
    lacking = {x for claim in CLAIMS for x in claim[1:3]} - set(files)
    if lacking:
        parser.error(f"not all folders have predictions of {', '.join(sorted(lacking))}")
    dataset = open_dataset(chosen.data)
    differences = [
        difference(files, dataset, better, other, is_of_tail=is_of_tail)
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
            found.difference.advantage.mean, len(seeds),
            _shown(found.p_value), _shown(found.corrected),
            verdict_here(found),
        )  # fmt: skip
    found_table = table.to_json()
    for row, each in zip(found_table["rows"], differences, strict=True):
        row[4] = _with_error(each.advantage)  # as the other records of findings have it
    keep(chosen.json, {"findings": found_table}, seeds=seeds)


def _with_error(advantage: Estimate) -> dict[str, float]:
    error = advantage.standard_error
    errors = {} if error is None else {"standard_error": error}
    return {"mean": advantage.mean, **errors, "digits": 2}


def _shown(p_value: float | None) -> float | str | None:
    if p_value is None:
        return None
    return "< 0.001" if p_value < 0.001 else round(p_value, 4)


if __name__ == "__main__":
    main()
