"""The trials of a task: p_D, the tree, then each method, tuned and run with every seed.

A trial is one method, with one learning rate and penalty, on one task with one seed; its figures
are a curve (Bamler & Mandt 2020, Figure 1): log likelihood and accuracy after numbers of steps, and
the seconds that the steps took, by the clock and of the process. Measuring is not counted. The time
to fit the label tree is measured once a task, and added when curves are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from longtail.models.errors import ConfigError
from research.experiments.adversarial.curves import (
    BASELINE,
    SHARES,
    Settings,
    candidates_in,
    levels,
    quickest,
    seconds_to,
)
from research.experiments.adversarial.methods import WITH_TREE, MethodName
from research.experiments.adversarial.trial_runner import (
    CRITERIA,
    TREE,
    TRUE,
    Criterion,
    TrialRunner,
    tuning_name,
)
from research.experiments.adversarial.tuning import METHODS, Candidate, best_along, tune
from research.experiments.trials import Trial, TrialStore, Values

_WORST: Values = {"tuning accuracy": 0.0, "tuning log_likelihood": -1e9}


def run_task(
    store: TrialStore, runner: TrialRunner, settings: Sequence[str], num_seeds: int
) -> None:
    """Run what the store does not hold yet of a task: p_D, the tree, then each method.

    A method is tuned with seed 0, by each criterion in turn, and its best is run with the others;
    so are then those that are quickest to what the baseline reaches, where it is run and searched.

    Args:
        store: The experiment's store.
        runner: The task's runner.
        settings: Some of `SETTINGS`; the tree is fitted for methods that draw from it too.
        num_seeds: Seeds 0 to this number less one.
    """
    task = _Task(store, runner)
    if runner.task.true is not None:
        task.keep(TRUE, 0, runner.run_true)
    if {TREE, *WITH_TREE} & set(settings):
        runner.tree_regulariser = task.keep(TREE, 0, runner.run_tree)["regulariser"]
    can_have_all = runner.task.truth.shape[1] <= runner.plan.max_softmax_labels
    methods = [
        method for method in METHODS
        if method in settings and (can_have_all or method != "softmax")
    ]  # fmt: skip
    for method in methods:
        task.tune(method)
        task.run_best(method, num_seeds)
    if BASELINE in methods and runner.plan.num_rounds:
        for method in methods:
            task.run_quickest(method, num_seeds)
            task.run_best(method, num_seeds)  # the search may have found a better one


@dataclass(frozen=True, slots=True)
class _Task:
    """The trials of one task.

    Attributes:
        store: Keeps them.
        runner: Runs them.
    """

    store: TrialStore
    runner: TrialRunner

    def keep(self, setting: str, seed: int, run: Callable[[], Values]) -> Values:
        """Run a trial, unless it is kept already, and return its figures."""
        return self.store.keep(Trial(self.runner.task.name, setting, seed), lambda _: run())

    def tune(self, method: MethodName) -> None:
        """Run what the search for the best candidate by each criterion tries, with seed 0."""
        for criterion in CRITERIA:
            objective_value = partial(self._objective_value, criterion)
            best = tune(method, objective_value, self.runner.plan.num_rounds)
            objective_value(best)  # without rounds nothing was run yet

    def run_best(self, method: MethodName, num_seeds: int) -> None:
        """Run the candidates of a method that are best by each criterion with every seed."""
        # A candidate that the search by one criterion tried may be better by the other.
        tried = self._settings()
        for criterion in CRITERIA:
            candidate = best_candidates(tried, criterion).get(method)
            if candidate is None:
                raise ConfigError(
                    f"{self.runner.task.name}: the loss of {method!r} overflows at every learning "
                    "rate that was tried; look at the document vectors, or leave it out of "
                    "--settings"
                )
            self._run_seeds(candidate, num_seeds)

    def run_quickest(self, method: MethodName, num_seeds: int) -> None:
        """Search along the rates for the quickest to each level, and run them with every seed.

        A rate that is best at the end of training need not be good soon.
        """
        for criterion in CRITERIA:
            for share in SHARES:
                level = levels(self._settings(), criterion)[0][share]
                start = quickest(self._settings(), method, criterion, level)
                speed = partial(self._speed_to, level, criterion)
                self._run_seeds(best_along("half_decade", start, speed), num_seeds)

    def _run_seeds(self, candidate: Candidate, num_seeds: int) -> None:
        for seed in range(num_seeds):
            run = partial(self.runner.run_candidate, candidate, seed)
            self.keep(candidate.setting, seed, run)

    def _settings(self) -> Settings:
        return self.store.read()[self.runner.task.name]

    def _speed_to(self, level: float, criterion: Criterion, candidate: Candidate) -> float:
        """Return the seconds that a candidate takes to a level with seed 0, negative."""
        self.keep(candidate.setting, 0, partial(self._run_or_worst, candidate))
        return -seconds_to(self._settings(), candidate, criterion, level, "cpu").get(0, math.inf)

    def _objective_value(self, criterion: Criterion, candidate: Candidate) -> float:
        """Return the criterion of a candidate with seed 0, on the tuning documents."""
        values = self.keep(candidate.setting, 0, partial(self._run_or_worst, candidate))
        return values[tuning_name(criterion)]

    def _run_or_worst(self, candidate: Candidate) -> Values:
        """Run a candidate with seed 0; one whose loss overflows gets the worst figures."""
        try:
            return self.runner.run_candidate(candidate, 0)
        except ConfigError:
            return _WORST


def best_candidates(settings: Settings, criterion: Criterion) -> dict[MethodName, Candidate]:
    """Return the candidate of each method that was best on the tuning documents, with seed 0.

    Of equally good ones the first; those whose loss overflowed have no curve, and are none.
    """
    name = tuning_name(criterion)
    best: dict[MethodName, Candidate] = {}
    for method in METHODS:
        if own := candidates_in(settings, method):
            best[method] = max(own, key=lambda each: settings[each.setting][name].values[0])
    return best
