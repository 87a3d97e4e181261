"""The trials of a task: p_D, the tree, then each method, tuned and run with every seed.

A trial is one method, with one learning rate and penalty, on one task with one seed; its figures
are a curve (Bamler & Mandt 2020, Figure 1): log likelihood and accuracy after numbers of steps, and
the seconds that the steps took, by the clock and of the process. Measuring is not counted. The time
to fit the label tree is measured once a task, and added when curves are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from models.errors import ConfigError
from training.configuration.linear import MethodName
from training.experiments.adversarial.trial_runner import (
    CRITERIA,
    TREE,
    TRUE,
    WITH_TREE,
    Criterion,
    TrialRunner,
    name_at,
    tuning_name,
)
from training.experiments.adversarial.tuning import METHODS, Candidate, tune
from training.experiments.trials import Estimate, Trial, TrialStore, Values

Settings = Mapping[str, Mapping[str, Estimate]]
"""Estimates by setting and name of the figure: those of a task."""

_WORST: Values = {"tuning accuracy": 0.0, "tuning log_likelihood": -1e9}


def run_task(
    store: TrialStore, runner: TrialRunner, settings: Sequence[str], num_seeds: int
) -> None:
    """Run what the store does not hold yet of a task: p_D, the tree, then each method.

    A method is tuned with seed 0, by each criterion in turn, and its best is run with the others.

    Args:
        store: Of the experiment.
        runner: Of the task.
        settings: Some of `SETTINGS`; the tree is fitted for methods that draw from it too.
        num_seeds: Seeds 0 to this number less one.

    Raises:
        ConfigError: The loss of a method overflows, whatever its learning rate; or the folder
            holds another experiment.
    """
    task = _Task(store, runner)
    if runner.task.true is not None:
        task.keep(TRUE, 0, runner.run_true)
    if {TREE, *WITH_TREE} & set(settings):
        runner.tree_regulariser = task.keep(TREE, 0, runner.run_tree)["regulariser"]
    can_have_all = runner.task.truth.shape[1] <= runner.plan.max_softmax_labels
    for method in METHODS:
        if method in settings and (can_have_all or method != "softmax"):
            task.run_method(method, num_seeds)


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

    def run_method(self, method: MethodName, num_seeds: int) -> None:
        """Tune a method by each criterion, and run the best candidates with every seed.

        Raises:
            ConfigError: Its loss overflows, whatever the learning rate.
        """
        for criterion in CRITERIA:
            objective_value = partial(self._objective_value, criterion)
            best = tune(method, objective_value, self.runner.plan.num_rounds)
            objective_value(best)  # without rounds nothing was run yet
        name = self.runner.task.name
        # A candidate that the search by one criterion tried may be better by the other.
        tried = self.store.read()[name]
        for criterion in CRITERIA:
            candidate = best_candidates(tried, criterion).get(method)
            if candidate is None:
                raise ConfigError(
                    f"{name}: the loss of {method!r} overflows at every learning rate that was "
                    "tried; look at the document vectors, or leave it out of --settings"
                )
            for seed in range(num_seeds):
                run = partial(self.runner.run_candidate, candidate, seed)
                self.keep(candidate.setting, seed, run)

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
    candidates = [
        Candidate.of_setting(name)
        for name, figures in settings.items()
        if name not in (TREE, TRUE) and name_at("steps", 0) in figures
    ]
    name = tuning_name(criterion)
    best: dict[MethodName, Candidate] = {}
    for method in METHODS:
        own = [each for each in candidates if each.method == method]
        if own:
            best[method] = max(own, key=lambda each: settings[each.setting][name].values[0])
    return best
