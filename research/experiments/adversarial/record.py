"""Learning curves as tables of a record: how training ends, how soon, and what is tested of it."""

from __future__ import annotations

import math
from typing import Any

from research.experiments.adversarial.curves import (
    BASELINE,
    SHARES,
    Clock,
    Settings,
    candidates_in,
    curves_of,
    levels,
    time_to_level,
)
from research.experiments.adversarial.methods import MethodName
from research.experiments.adversarial.run import best_candidates
from research.experiments.adversarial.trial_runner import CRITERIA, TREE, TRUE, Criterion
from research.experiments.adversarial.tuning import METHODS, Candidate
from research.experiments.findings import Finding, findings_record, run_tests
from research.experiments.trials import Estimate, Found

_ENDS = ("task", "tuned by", "method", "rate", "penalty", "seeds", "steps", "CPU, s",
         "log likelihood", "accuracy, %")  # fmt: skip
_OURS: MethodName = "adversarial"


def adversarial_record(found: Found, clock: Clock) -> dict[str, Any]:
    """Return the tables.

    `ends` has each method with what is best at the end by a criterion; `envelope` the seconds until
    it is as good as a share of the baseline's best, with what is quickest to it, and how many times
    as soon as the baseline; `findings` tests over the seeds that the adversarial negatives end
    above the baseline, by accuracy in points and by log likelihood in hundredths of a nat.

    Args:
        found: Findings of all tasks.
        clock: Whose seconds the envelope has.
    """
    ends = [
        row
        for task, settings in found.items()
        for row in (*_untrained(task, settings), *_ended(task, settings))
    ]
    soon = [
        [task, criterion.replace("_", " "), f"`{method}`", *cells]
        for task, settings in found.items()
        for criterion in CRITERIA
        if levels(settings, criterion)
        for method in METHODS
        if candidates_in(settings, method)
        for cells in [_soon(settings, method, criterion, clock)]
    ]
    seconds = "CPU s" if clock == "cpu" else "s"
    columns = [
        f"{share:.0%} of the way, {what}" for share in SHARES for what in (seconds, "times as soon")
    ]
    return {
        "ends": {"columns": [{"name": name} for name in _ENDS], "rows": ends},
        "envelope": {
            "columns": [{"name": name} for name in ("task", "by", "method", *columns)],
            "rows": soon,
        },
        "findings": findings_record(run_tests(_tested(found), _findings(found))),
    }


def _untrained(task: str, settings: Settings) -> list[list[Any]]:
    return [
        [
            task, None, title, None, None, len(figures["accuracy"].values), 0,
            _cell(figures["cpu_s"], 1) if "cpu_s" in figures else None,
            _cell(figures["log_likelihood"], 3), _cell(_percent(figures["accuracy"]), 1),
        ]
        for name, title in ((TRUE, "p_D itself"), (TREE, "tree alone"))
        for figures in [settings.get(name)]
        if figures
    ]  # fmt: skip


def _ended(task: str, settings: Settings) -> list[list[Any]]:
    rows = []
    for criterion in CRITERIA:
        for method, candidate in best_candidates(settings, criterion).items():
            curves = list(curves_of(settings, candidate, criterion, "cpu").values())
            seconds = Estimate(tuple(float(curve.seconds[-1]) for curve in curves))
            last = f" {len(curves[0].seconds) - 1}"
            figures = settings[candidate.setting]
            rows.append(
                [
                    task, criterion.replace("_", " "), f"`{method}`", candidate.learning_rate,
                    candidate.penalty, len(curves), round(figures["steps" + last].mean),
                    _cell(seconds, 1), _cell(figures["log_likelihood" + last], 3),
                    _cell(_percent(figures["accuracy" + last]), 1),
                ]
            )  # fmt: skip
    return rows


def _soon(settings: Settings, method: MethodName, criterion: Criterion, clock: Clock) -> list[Any]:
    cells: list[Any] = []
    for share in SHARES:
        time = time_to_level(settings, method, criterion, share, clock)
        if math.isfinite(time.seconds.mean):
            cells += [_cell(time.seconds, 2), _cell(time.quotient, 2)]
        else:
            cells += ["never", None]
    return cells


def _end_of(settings: Settings, candidate: Candidate, criterion: Criterion) -> Estimate:
    curves = curves_of(settings, candidate, criterion, "cpu")
    return Estimate(tuple(float(curve.values[-1]) for curve in curves.values()), tuple(curves))


def _tested(found: Found) -> Found:
    """Return where the two methods end, by task and criterion."""
    pair: tuple[MethodName, ...] = (_OURS, BASELINE)
    return {
        task: {
            method: {
                criterion: _end_of(settings, candidate, criterion)
                for criterion in CRITERIA
                if (candidate := best_candidates(settings, criterion).get(method))
            }
            for method in pair
        }
        for task, settings in found.items()
    }


def _findings(found: Found) -> list[Finding]:
    return [
        Finding(
            f"adversarial negatives end above {BASELINE} ones by {criterion.replace('_', ' ')}",
            task, criterion, _OURS, (BASELINE,),
        )
        for criterion in CRITERIA
        for task in found
    ]  # fmt: skip


def _percent(estimate: Estimate) -> Estimate:
    return Estimate(tuple(100 * value for value in estimate.values), estimate.seeds)


def _cell(estimate: Estimate, digits: int) -> dict[str, float]:
    error = estimate.standard_error
    cell = {"mean": estimate.mean, "digits": digits}
    return cell if error is None else cell | {"standard_error": error}
