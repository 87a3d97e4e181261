"""The commands `longtail experiment ...`: the papers' experiments on any corpus."""

from __future__ import annotations

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
DataArgument = Annotated[Path, typer.Argument(help="Folder of the corpus.")]


def make_experiment_app() -> typer.Typer:
    """Return the group of commands."""
    app = typer.Typer(
        no_args_is_help=True,
        help="Repeat the papers' experiments on a corpus; what is stopped goes on.",
    )
    app.command("sampling-bias")(sampling_bias)
    app.command("negative-mining")(negative_mining)
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
) -> None:
    """Compare sampling distributions and weights on head and tail (Rawat et al. 2021)."""
    from training.experiment_runs import run_sampling_bias_experiment
    from training.sampling_bias import SamplingBiasPlan

    plan = SamplingBiasPlan(epochs=epochs)
    _print_report(
        run_sampling_bias_experiment(
            data, output, num_seeds=seeds, split=split, settings=settings, plan=plan
        )
    )


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
) -> None:
    """Compare the hardest of the sampled negatives with all of them (Reddi et al. 2019)."""
    from training.experiment_runs import run_negative_mining_experiment
    from training.negative_mining import NegativeMiningPlan

    plan = NegativeMiningPlan(epochs=epochs, num_sampled=sampled)
    _print_report(
        run_negative_mining_experiment(
            data, output, num_seeds=seeds, split=split, settings=settings, plan=plan
        )
    )


def _print_report(paths: list[Path]) -> None:
    typer.echo(paths[1].read_text(encoding="utf-8").rstrip())
    typer.echo("\n" + "\n".join(f"Written: {path}" for path in paths))
