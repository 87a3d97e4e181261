"""The commands `longtail experiment ...`: the papers' experiments on any corpus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Literal

import typer

EpochsOption = Annotated[
    int, typer.Option(min=1, help="Passes over the training part; part of what is compared.")
]
SeedsOption = Annotated[int, typer.Option(min=1, help="Seeds of each setting: 0, 1, ...")]
SettingsOption = Annotated[
    str | None, typer.Option(help="Settings to run, between commas; all by default.")
]
SplitOption = Annotated[
    Literal["dev", "test"],
    typer.Option(help="What is measured on; without a dev split a tenth of training is held out."),
]
EngineOption = Annotated[
    str, typer.Option(help="local, or ray: workers on a cluster (RAY_ADDRESS), or here.")
]
WorkersOption = Annotated[int, typer.Option(min=1, help="With ray: processes of one thread.")]
DataArgument = Annotated[Path, typer.Argument(help="Folder of the corpus.")]


def make_experiment_app() -> typer.Typer:
    """Return the group of commands."""
    app = typer.Typer(
        no_args_is_help=True,
        help="Repeat the papers' experiments on a corpus; what is stopped goes on.",
    )
    app.command("sampling-bias")(sampling_bias)
    app.command("negative-mining")(negative_mining)
    app.command("adversarial")(adversarial)
    app.command("depl")(depl)
    return app


def sampling_bias(
    data: DataArgument,
    output: Annotated[
        Path, typer.Option(help="Folder for the figures; started again on it, it goes on.")
    ] = Path("runs/sampling-bias"),
    seeds: SeedsOption = 3,
    epochs: EpochsOption = 2,
    settings: SettingsOption = None,
    split: SplitOption = "dev",
    engine: EngineOption = "local",
    workers: WorkersOption = 1,
) -> None:
    """Compare sampling distributions and weights on head and tail (Rawat et al. 2021)."""
    from training.experiments.runs import run_sampling_bias_experiment
    from training.experiments.sampling_bias import SamplingBiasPlan
    from training.runtime.ray import checked_engine

    plan = SamplingBiasPlan(epochs=epochs)
    with _working(data, output):
        _print_report(
            run_sampling_bias_experiment(
                data, output, num_seeds=seeds, split=split, settings=settings, plan=plan,
                engine=checked_engine(engine, workers),
            )
        )  # fmt: skip


def negative_mining(
    data: DataArgument,
    output: Annotated[
        Path, typer.Option(help="Folder for the figures; started again on it, it goes on.")
    ] = Path("runs/negative-mining"),
    seeds: SeedsOption = 3,
    epochs: EpochsOption = 4,
    sampled: Annotated[
        int, typer.Option(min=2, help="B, the labels sampled a step; fewer than there are.")
    ] = 1024,
    settings: SettingsOption = None,
    split: SplitOption = "dev",
    engine: EngineOption = "local",
    workers: WorkersOption = 1,
) -> None:
    """Compare the hardest of the sampled negatives with all of them (Reddi et al. 2019)."""
    from training.experiments.negative_mining import NegativeMiningPlan
    from training.experiments.runs import run_negative_mining_experiment
    from training.runtime.ray import checked_engine

    plan = NegativeMiningPlan(epochs=epochs, num_sampled=sampled)
    with _working(data, output):
        _print_report(
            run_negative_mining_experiment(
                data, output, num_seeds=seeds, split=split, settings=settings, plan=plan,
                engine=checked_engine(engine, workers),
            )
        )  # fmt: skip


def adversarial(
    data: Annotated[Path | None, typer.Argument(help="Folder of the corpus.")] = None,
    output: Annotated[
        Path, typer.Option(help="Folder for the figures; started again on it, it goes on.")
    ] = Path("runs/adversarial"),
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
        int, typer.Option(min=0, help="Turns of the search for rate and penalty; 0: no tuning.")
    ] = 1,
    clock: Annotated[
        Literal["cpu", "wall"],
        typer.Option(help="Whose seconds times to a target and the picture have."),
    ] = "cpu",
    engine: EngineOption = "local",
    workers: WorkersOption = 1,
) -> None:
    """Compare ways to train linear scorers by their learning curves (Bamler & Mandt 2020)."""
    from training.experiments.adversarial.bench import AdversarialPlan
    from training.experiments.runs import run_adversarial_experiment
    from training.runtime.ray import checked_engine

    plan = AdversarialPlan(
        num_steps=steps,
        dim=dim,
        num_judged=judged,
        tree_regulariser=tree_regulariser,
        num_rounds=rounds,
    )
    with _working(data, output):
        _print_report(
            run_adversarial_experiment(
                data, output, num_seeds=seeds, synthetic=synthetic or (),
                task=task, settings=settings, plan=plan, clock=clock,
                engine=checked_engine(engine, workers),
            )
        )  # fmt: skip


def depl(
    data: DataArgument,
    output: Annotated[
        Path, typer.Option(help="Folder for the figures; started again on it, it goes on.")
    ] = Path("runs/depl"),
    config: Annotated[
        Path | None, typer.Option(help="YAML file of the run that settings change.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each setting: 0, 1, ...")] = 1,
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
    engine: EngineOption = "local",
    workers: WorkersOption = 1,
) -> None:
    """Train DEPL with one thing changed at a time, and compare (Zhang et al. 2023, A.1.5)."""
    from models.files.outputs import check_readable_file
    from training.configuration.run import read_config
    from training.experiments.runs import run_depl_experiment
    from training.runtime.ray import checked_engine

    if config is not None:
        check_readable_file(config, "--config")
    with _working(data, output):
        _print_report(
            run_depl_experiment(
                data, output, num_seeds=seeds, split=split, settings=settings,
                base=read_config(config), epochs=epochs, engine=checked_engine(engine, workers),
            )
        )  # fmt: skip


@contextmanager
def _working(data: Path | None, output: Path) -> Iterator[None]:
    """Hold the folder of an experiment; what can be known to stop it is checked first.

    Raises:
        ConfigError: The folder can't be written to, holds something else, or another process
            works in it.
        DataError: There is no corpus.
    """
    from models.files.failures import doing
    from models.files.outputs import check_own_folder, held
    from training.data.files import find_files
    from training.experiments.trials import CONFIGURATION_NAME

    check_own_folder(output, CONFIGURATION_NAME, "--output")
    if data is not None:
        find_files(data)
    is_new = not output.exists()
    refusal = f"--output {str(output)!r}: another experiment works in it; wait for it"
    try:
        with doing("running the experiment", output):
            output.mkdir(parents=True, exist_ok=True)
            with held(output / ".lock", refusal):
                yield
    finally:
        if is_new:
            with suppress(OSError):  # it holds something by now
                output.rmdir()


def _print_report(paths: list[Path]) -> None:
    typer.echo(paths[1].read_text(encoding="utf-8").rstrip())
    typer.echo("\n" + "\n".join(f"Written: {path}" for path in paths))
