"""The experiment of Bamler & Mandt 2020: learning curves of linear scorers by method (Figure 1).

A trial is one method, with one learning rate and regulariser, on one task with one seed; its
figures are a curve: log likelihood and accuracy after so many steps, and the seconds that the steps
took, by the clock on the wall and of the process. Judging is not counted. The time to fit the label
tree is measured once a task, and added when curves are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from models.errors import ConfigError
from training.configuration.linear import MethodName
from training.experiments.adversarial.bench import (
    CRITERIA,
    TREE,
    TRUE,
    WITH_TREE,
    Bench,
    Criterion,
    Trying,
    name_at,
    tuning_name,
)
from training.experiments.adversarial.tuning import METHODS, Candidate, tune
from training.experiments.trials import Estimate, Trial, Values, keep_trial, read_trials
from training.runtime.ray import LOCAL, Engine

Keep = Callable[[str, int, Callable[[], Values]], Values]
"""Runs a trial of a setting and a seed, unless it is kept already, and returns its figures."""

Settings = Mapping[str, Mapping[str, Estimate]]
"""Estimates by setting and name of the figure: those of a task."""


_WORST: Values = {"tuning accuracy": 0.0, "tuning log_likelihood": -1e9}


def run_task(
    folder: Path,
    bench: Bench,
    settings: Sequence[str],
    num_seeds: int,
    engine: Engine = LOCAL,
) -> None:
    """Run what the folder does not hold yet of a task: p_D, the tree, then each method.

    A method is tuned with seed 0, by each criterion in turn, and its best is run with the others.
    On Ray each worker has one method at a time.

    Args:
        folder: Of the experiment, claimed.
        bench: The task.
        settings: Some of `SETTINGS`; the tree is fitted for methods that draw from it too.
        num_seeds: Seeds 0 to this number less one.
        engine: What runs the trials.

    Raises:
        ConfigError: The loss of a method overflows, whatever its learning rate; or the engine is
            not to be had.
    """
    keep = partial(_keep, folder, bench.task.name)
    if bench.task.true is not None:
        keep(TRUE, 0, bench.run_true)
    benches: Sequence[Trying] = [bench]
    if engine.is_ray:
        from training.experiments.adversarial.ray import benches_on_ray

        benches = benches_on_ray(bench, engine.num_workers)
    if {TREE, *WITH_TREE} & set(settings):
        regulariser = keep(TREE, 0, benches[0].run_tree)["regulariser"]
        for each in benches:
            each.tree_regulariser = regulariser
    can_have_all = bench.task.truth.shape[1] <= bench.plan.most_softmax_labels
    methods = [x for x in METHODS if x in settings and (can_have_all or x != "softmax")]
    run = partial(_run_method, folder, keep, bench.task.name, bench.plan.num_rounds, num_seeds)
    if len(benches) > 1:
        _run_at_once(run, methods, benches)
    else:
        for method in methods:
            run(method, benches[0])


def _run_at_once(
    run: Callable[[MethodName, Trying], None],
    methods: Sequence[MethodName],
    benches: Sequence[Trying],
) -> None:
    """Run methods by threads that wait for the workers, each of which has one at a time."""
    free: SimpleQueue[Trying] = SimpleQueue()
    for bench in benches:
        free.put(bench)

    def run_on_a_free_one(method: MethodName) -> None:
        bench = free.get()
        try:
            run(method, bench)
        finally:
            free.put(bench)

    with ThreadPoolExecutor(len(benches)) as pool:
        list(pool.map(run_on_a_free_one, methods))


def _run_method(
    folder: Path,
    keep: Keep,
    task_name: str,
    num_rounds: int,
    num_seeds: int,
    method: MethodName,
    bench: Trying,
) -> None:
    for criterion in CRITERIA:
        worth = partial(_worth, keep, bench, criterion)
        worth(tune(method, worth, num_rounds))  # without rounds nothing was run yet
    # What the search for one criterion came by may be better at the other.
    tried = read_trials(folder)[task_name]
    for criterion in CRITERIA:
        best = best_candidates(tried, criterion).get(method)
        if best is None:
            raise ConfigError(
                f"{task_name}: the loss of {method!r} overflows at every learning rate that "
                "was tried; look at the document vectors, or leave it out of --settings"
            )
        for seed in range(num_seeds):
            keep(best.setting, seed, partial(bench.run_candidate, best, seed))


def _keep(
    folder: Path, task_name: str, setting: str, seed: int, run: Callable[[], Values]
) -> Values:
    return keep_trial(folder, Trial(task_name, setting, seed), lambda _: run())


def _worth(keep: Keep, bench: Trying, criterion: Criterion, candidate: Candidate) -> float:
    """Return what a candidate is worth with seed 0 where it is tuned."""
    values = keep(candidate.setting, 0, partial(_or_worst, bench, candidate))
    return values[tuning_name(criterion)]


def _or_worst(bench: Trying, candidate: Candidate) -> Values:
    """Run a candidate with seed 0; one whose steps are too long is as bad as can be."""
    try:
        return bench.run_candidate(candidate, 0)
    except ConfigError:
        return _WORST


def best_candidates(settings: Settings, criterion: Criterion) -> dict[MethodName, Candidate]:
    """Return the candidate of each method that was best where it was tuned, with seed 0.

    Of equally good ones the first; those whose steps were too long have no curve, and are none.
    """
    candidates = [
        Candidate.of_setting(name)
        for name, figures in settings.items()
        if name not in (TREE, TRUE) and name_at("steps", 0) in figures
    ]
    worth = tuning_name(criterion)
    best: dict[MethodName, Candidate] = {}
    for method in METHODS:
        own = [each for each in candidates if each.method == method]
        if own:
            best[method] = max(own, key=lambda each: settings[each.setting][worth].values[0])
    return best
