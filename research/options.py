"""Options that several of the experiments have, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

CorpusArgument = Annotated[Path, typer.Argument(help="Folder of the corpus.")]
ExperimentOption = Annotated[
    Path, typer.Option("--output", help="Folder for the figures; run again on it, it resumes.")
]
SeedsOption = Annotated[int, typer.Option(min=1, help="Seeds of each setting: 0, 1, ...")]
EpochsOption = Annotated[
    int, typer.Option(min=1, help="Passes over the training part; part of what is compared.")
]
RatesOption = Annotated[
    str | None,
    typer.Option(
        help="Learning rates between commas, of which each setting gets the best on half of the "
        "measured documents; the figures are of the others. By default one rate for all."
    ),
]
SettingsOption = Annotated[
    str | None, typer.Option(help="Settings to run, between commas; all by default.")
]
MeasuredSplitOption = Annotated[
    Literal["dev", "test"],
    typer.Option(
        "--split",
        help="What is measured on; without a dev split a tenth of training is held out.",
    ),
]
