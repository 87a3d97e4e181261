"""The offline commands: `longtail train` here, the others in `longtail.training.commands`."""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.extensions import engine_named
from longtail.models.corpus.columns import RECOGNISED, CorpusOptions
from longtail.training.commands.describe import describe, inspect_corpus
from longtail.training.commands.evaluate import compare, evaluate, report
from longtail.training.commands.options import (
    DEFAULT_REGISTRY,
    DataArgument,
    EngineOption,
    RegistryOption,
    SkipBadOption,
    WorkersOption,
    configure_logging,
    with_corpus_options,
)
from longtail.training.commands.promises import threshold
from longtail.training.commands.vocabulary import vocabulary_app

if TYPE_CHECKING:  # imported inside the commands, so that --help stays fast
    from longtail.training.configuration.run import TrainingConfig
    from longtail.training.runtime.distributed import Processes


def add_commands(app: typer.Typer) -> None:
    """Register these commands on the command of the whole product."""
    app.command("train")(train)
    app.command("inspect")(inspect_corpus)
    app.command("evaluate")(evaluate)
    app.command("report")(report)
    app.command("compare")(compare)
    app.command("threshold")(threshold)
    app.command("describe")(describe)
    app.add_typer(vocabulary_app, name="vocabulary")


@with_corpus_options
def train(
    data: DataArgument,
    config: Annotated[
        Path | None,
        typer.Option(
            help="YAML file of the run; or full (fine-tuned), gpu, phrases, sparse or demo."
        ),
    ] = None,
    registry: RegistryOption = DEFAULT_REGISTRY,
    work: Annotated[
        Path, typer.Option(help="Folder of the run's work; started again on it, a run resumes.")
    ] = Path("runs/train"),
    seed: Annotated[
        int | None, typer.Option(help="Replaces the seed of the configuration.")
    ] = None,
    without_encoder: Annotated[
        bool,
        typer.Option(
            "--without-encoder",
            help="Train all that needs no encoder, and the ensemble of it: seconds to minutes.",
        ),
    ] = False,
    activate: Annotated[
        bool,
        typer.Option(
            help="Let 'current' name the new version; without, 'longtail promote' may do it."
        ),
    ] = True,
    engine: EngineOption = "local",
    workers: WorkersOption = 1,
    skip_bad: SkipBadOption = False,
    corpus: CorpusOptions = RECOGNISED,
) -> None:
    """Train a model on a corpus and publish it in the registry."""
    configure_logging()
    started = time.monotonic()
    from longtail.models.bundle.registry import Registry
    from longtail.models.files.outputs import check_not_in_registry, check_own_folder
    from longtail.training.data.dataset import open_dataset
    from longtail.training.pipeline.train import Run
    from longtail.training.pipeline.train import train as train_run
    from longtail.training.reports.training_cost import forecast
    from longtail.training.runtime.kept import RUN_NAME
    from longtail.training.sparse.fit import fit_on_threads

    settings = _settings(config, seed, without_encoder=without_encoder)
    named = engine_named(engine)
    fits_labels = fit_on_threads if named is None else named(workers)
    with _launched_processes() as processes:
        if processes is not None and not processes.is_first:
            from longtail.training.pipeline.dense import follow

            follow(settings, processes)
            return
        check_not_in_registry(work, registry, "--work")
        Registry(registry).check_writable()
        check_own_folder(work, RUN_NAME, "--work")
        dataset = open_dataset(data, replace(corpus, skip_bad=skip_bad))
        run = Run(settings, dataset, work, processes, fits_labels, activate)
        dataset.check()
        print(forecast(settings, dataset), flush=True)
        version = train_run(run, Registry(registry))
    manifest = Registry(registry).open(version).manifest
    print(
        f"Version {version} of {str(registry)!r} is trained, in {time.monotonic() - started:.0f} s."
    )
    print(f"{manifest.label_count} labels, default scorer {manifest.default_scorer}.")
    if manifest.default_scorer_reason:
        print(f"Why this scorer: {manifest.default_scorer_reason}.")
    print(f"Digest {manifest.digest}")


def _launched_processes() -> AbstractContextManager[Processes | None]:
    """Return the processes that torchrun started with this one; None: it started none."""
    if "WORLD_SIZE" not in os.environ:
        return nullcontext()
    from longtail.training.runtime.distributed import joined_processes

    return joined_processes()


def _settings(config: Path | None, seed: int | None, *, without_encoder: bool) -> TrainingConfig:
    """Return the configuration of a run, with what options replace of it."""
    from longtail.models.files.outputs import check_readable_file
    from longtail.training.configuration.run import file_of_config, read_config

    if config is not None:
        check_readable_file(file_of_config(config), "--config")
    overrides: dict[str, Any] = {} if seed is None else {"seed": seed}
    settings = read_config(config, overrides)
    return settings.without_encoder if without_encoder else settings
