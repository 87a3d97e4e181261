"""Options that several of the offline commands have, each declared once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_REGISTRY = Path("registry")

DataArgument = Annotated[
    Path,
    typer.Argument(help="Folder of the corpus, or one file: JSON lines, CSV, TSV, Parquet, ..."),
]
RegistryOption = Annotated[
    Path, typer.Option("--registry", envvar="LONGTAIL_REGISTRY", help="Folder of the registry.")
]
VersionOption = Annotated[str, typer.Option(help="A version's number, or 'current'.")]
SplitOption = Annotated[str, typer.Option(help="train, dev or test.")]
BaselinesOption = Annotated[
    bool, typer.Option(help="Measure 30-nearest-neighbour and label-name matching too.")
]
SkipBadOption = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out documents that can't be used, and count them.")
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace results that are there already.")
]
ConfidentialOption = Annotated[
    bool, typer.Option("--confidential", help="Quote no document, id or line.")
]
JsonOption = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write the figures as JSON, with command, commit, date, processor and seeds; "
        "- prints them, and nothing else.",
    ),
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Train the best that this time allows, such as 30m or 2h: first without an encoder, "
        "then with one for as long as is left. Both are published.",
    ),
]
EngineOption = Annotated[
    str, typer.Option(help="local, or ray: workers on a cluster (RAY_ADDRESS), or here.")
]
WorkersOption = Annotated[int, typer.Option(min=1, help="With ray: processes of one thread.")]

_UNITS = {"h": 3600, "m": 60, "s": 1}
_TIME = re.compile(r"(?=.)(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s)?", re.ASCII)


def seconds_of(value: str, option: str) -> int:
    """Return the seconds of a time as options have it: "90s", "30m", "1h30m".

    Args:
        value: The time.
        option: Its name.

    Raises:
        ConfigError: It is no such time, or none at all.
    """
    from longtail.models.errors import ConfigError

    found = _TIME.fullmatch(value.strip().lower())
    counts = [] if found is None else [int(each or 0) for each in found.groups()]
    seconds = sum(count * unit for count, unit in zip(counts, _UNITS.values(), strict=False))
    if not seconds:
        raise ConfigError(f"{option} {value!r}: expected a time such as 90s, 30m, 2h or 1h30m")
    return seconds
