"""The experiment of Bamler & Mandt 2020: learning curves of linear scorers by method (Figure 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import torch
import typer

from longtail.models.errors import ConfigError
from longtail.training.commands.options import JsonOption
from longtail.training.data.dataset import Dataset, open_dataset
from research.experiments.adversarial.curves import Clock
from research.experiments.adversarial.picture import draw_adversarial
from research.experiments.adversarial.record import adversarial_record
from research.experiments.adversarial.run import run_task
from research.experiments.adversarial.tasks import (
    CORPUS_TASKS,
    CorpusTaskName,
    LearningTask,
    MixtureProblem,
    corpus_tasks,
)
from research.experiments.adversarial.trial_runner import SETTINGS, AdversarialPlan, TrialRunner
from research.experiments.data import read_experiment_data
from research.experiments.runner import Experiment, Report, run_experiment
from research.experiments.trials import Found, TrialStore, choose_settings
from research.options import ExperimentOption, SeedsOption, SettingsOption


def command(
    data: Annotated[Path | None, typer.Argument(help="Folder of the corpus.")] = None,
    output: ExperimentOption = Path("runs/adversarial"),
    synthetic: Annotated[
        list[int] | None,
        typer.Option(min=2, help="In place of a corpus: labels of a made-up one. Repeatable."),
    ] = None,
    task: Annotated[
        Literal["first_label", "all_labels"] | None,
        typer.Option(help="Of a corpus; both by default."),
    ] = None,
    seeds: SeedsOption = 3,
    steps: Annotated[
        int, typer.Option(min=1, help="Steps of methods with the tree; part of what is compared.")
    ] = 2000,
    settings: SettingsOption = None,
    dim: Annotated[
        int, typer.Option(min=1, help="Dimensions of the truncated SVD of tf-idf.")
    ] = 128,
    judged: Annotated[
        int, typer.Option(min=1, help="Dev documents to tune on, and to measure on.")
    ] = 1500,
    tree_regulariser: Annotated[
        float | None, typer.Option(help="lambda_n of the tree; by cross-validation by default.")
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=0, help="Rounds of the search for rate and penalty; 0: no tuning.")
    ] = 1,
    clock: Annotated[
        Literal["cpu", "wall"],
        typer.Option(help="Which seconds times to a target and the picture have."),
    ] = "cpu",
    json_file: JsonOption = None,
) -> None:
    """Compare ways to train linear scorers by their learning curves (Bamler & Mandt 2020)."""

    def make() -> Experiment:
        plan = AdversarialPlan(
            num_steps=steps,
            dim=dim,
            num_judged=judged,
            tree_regulariser=tree_regulariser,
            num_rounds=rounds,
        )
        problems = _checked_problems(data, synthetic or (), task)
        return adversarial(problems, seeds, settings, plan, clock)

    typer.echo(run_experiment(make, output, data=data, json_file=json_file))


Problems = tuple[Dataset, Sequence[CorpusTaskName]] | Sequence[int]
"""A corpus and its tasks, or numbers of labels of the made-up problem."""


def adversarial(
    problems: Problems,
    num_seeds: int,
    settings: str | None,
    plan: AdversarialPlan,
    clock: Clock = "cpu",
) -> Experiment:
    """Return the experiment; all is tuned on one half of the dev split, measured on the other.

    Args:
        problems: What is learned.
        num_seeds: Seeds 0 to this number less one.
        settings: Names between commas; None for all.
        plan: How to train.
        clock: Whose seconds times to a target and the picture have.
    """
    names = choose_settings(SETTINGS, settings)

    def run(store: TrialStore, device: str) -> Found:
        for task in _tasks(problems, plan):
            run_task(store, TrialRunner(task, plan, device), names, num_seeds)
        return store.read()

    def report(found: Found) -> Report:
        return Report(adversarial_record(found, clock), draw_adversarial(found, clock))

    dataset = problems[0] if isinstance(problems, tuple) else None
    content = {**asdict(plan), "threads": torch.get_num_threads()}
    return Experiment("adversarial", dataset, "dev", num_seeds, content, run, report)


def _checked_problems(
    data: Path | None, synthetic: Sequence[int], task: CorpusTaskName | None
) -> Problems:
    """Return what is to be learned."""
    if data is None and not synthetic:
        raise ConfigError("adversarial negatives: nothing to learn; give a corpus, or --synthetic")
    if data is not None and synthetic:
        raise ConfigError(
            "adversarial negatives: a corpus and --synthetic; give each an --output of its own"
        )
    if synthetic and task:
        raise ConfigError(
            f"adversarial negatives: --task {task} is of a corpus, and --synthetic has none; leave "
            "one of them out"
        )
    return (
        list(synthetic) if data is None else (open_dataset(data), [task] if task else CORPUS_TASKS)
    )


def _tasks(problems: Problems, plan: AdversarialPlan) -> Iterator[LearningTask]:
    if isinstance(problems, tuple):
        dataset, names = problems
        data = read_experiment_data(dataset, "dev")
        yield from corpus_tasks(data, names, dim=plan.dim, num_judged=plan.num_judged)
        return
    for num_labels in problems:
        yield MixtureProblem(num_labels).make(plan.num_judged)
