"""The experiment of Zhang et al. 2023: DEPL with one thing changed at a time (A.1.5)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from longtail.models.errors import ConfigError, DataError
from longtail.models.files.outputs import check_readable_file
from longtail.training.commands.options import JsonOption
from longtail.training.configuration.run import TrainingConfig, read_config
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.data.overlap import with_splits_apart
from longtail.training.runtime.distributed import find_machine
from research.experiments.depl.ablations import ablation_trials, choose_ablations, with_epochs
from research.experiments.depl.claims import ablation_record
from research.experiments.depl.picture import draw_ablations
from research.experiments.depl.runs import AblationRuns
from research.experiments.runner import Experiment, Report, run_experiment
from research.experiments.trials import Found, TrialStore
from research.options import CorpusArgument, ExperimentOption, SeedsOption


def command(
    data: CorpusArgument,
    output: ExperimentOption = Path("runs/depl"),
    config: Annotated[
        Path | None, typer.Option(help="YAML file of the run that settings change.")
    ] = None,
    seeds: SeedsOption = 1,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Of both stages; those of the configuration by default."),
    ] = None,
    settings: Annotated[
        str | None,
        typer.Option(help="Settings to run beside the base, between commas; all by default."),
    ] = None,
    split: Annotated[
        Literal["dev", "test"], typer.Option(help="What is measured on; a dev split must be there.")
    ] = "dev",
    json_file: JsonOption = None,
) -> None:
    """Train DEPL with one thing changed at a time, and compare (Zhang et al. 2023, A.1.5)."""
    if config is not None:
        check_readable_file(config, "--config")
    tuned = {"classifier": {"epochs": 2}, "retrieval": {"epochs": 2}} if config is None else None
    base = read_config(config, tuned)

    def make() -> Experiment:
        run = base if epochs is None else with_epochs(base, epochs)
        return depl(with_splits_apart(open_dataset(data)), split, seeds, settings, run, output)

    typer.echo(run_experiment(make, output, data=data, json_file=json_file))


def depl(
    dataset: Dataset,
    split: str,
    num_seeds: int,
    settings: str | None,
    base: TrainingConfig,
    folder: Path,
) -> Experiment:
    """Return the experiment.

    Args:
        dataset: The corpus.
        split: "dev" or "test".
        num_seeds: Seeds 0 to this number less one.
        settings: Names between commas; None for all that the corpus and the configuration can have.
        base: The run that settings change; its seed is not used.
        folder: The experiment's folder, for rankings and stages that settings share.
    """
    _check_base(base, dataset)
    names = choose_ablations(settings, base, dataset.labels)
    trials = ablation_trials(names, base, num_seeds)
    runs = AblationRuns(dataset, base, split, folder)

    def run(store: TrialStore, _: str) -> Found:
        return store.run(trials, runs.figures)

    def report(found: Found) -> Report:
        evidence = runs.evidence(found)
        return Report(ablation_record(evidence), draw_ablations(evidence), runs.described())

    plan = {
        "base": base.settings_used | {"seed": "0, 1, ..."},
        "is_bfloat16": find_machine(base.precision).is_bfloat16,
    }
    return Experiment("depl", dataset, split, num_seeds, plan, run, report)


def _check_base(base: TrainingConfig, dataset: Dataset) -> None:
    """Refuse a configuration in which nothing can be ablated."""
    if not base.is_dense:
        raise ConfigError(
            f"depl: got scorers {', '.join(base.scorers)}; expected 'retrieval' among them"
        )
    if not base.is_tuned:
        raise ConfigError("depl: retrieval.epochs is 0; expected at least 1, to fine-tune")
    if "dev" not in dataset.split_names:
        raise DataError(
            f"{dataset.folder}: no dev split, on which settings are compared and scorers are "
            "blended; give one"
        )
