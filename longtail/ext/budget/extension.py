"""`longtail train --budget`: the best model that a time allows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

import typer

from longtail.extensions import Extension, TrainingOption
from longtail.models.errors import ConfigError

_UNITS = {"h": 3600, "m": 60, "s": 1}
_TIME = re.compile(r"(?=.)(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s)?", re.ASCII)


def seconds_of(value: str) -> int:
    """Return the seconds of a time such as "90s", "30m" or "1h30m"."""
    found = _TIME.fullmatch(value.strip().lower())
    counts = [] if found is None else [int(each or 0) for each in found.groups()]
    seconds = sum(count * unit for count, unit in zip(counts, _UNITS.values(), strict=False))
    if not seconds:
        raise ConfigError(f"--budget {value!r}: expected a time such as 90s, 30m, 2h or 1h30m")
    return seconds


def _trainer(value: str) -> Callable[[Any, Any], int]:
    seconds = seconds_of(value)

    def train(run: Any, registry: Any) -> int:
        from longtail.ext.budget.budget import train_within

        return train_within(run, registry, seconds, tell=print)

    return train


_BUDGET = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Train the best that this time allows, such as 30m or 2h: first without an encoder, "
        "then with one for as long as is left. Both are published.",
    ),
]
EXTENSION = Extension("budget", training=(TrainingOption("budget", _BUDGET, _trainer),))
