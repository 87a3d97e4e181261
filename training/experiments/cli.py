"""The commands `longtail experiment ...`: the papers' experiments on any corpus."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_HELP = "Repeat the papers' experiments on a corpus; an interrupted one resumes."
_HERE = "longtail.training.experiments"
EXPERIMENTS = {
    "sampling-bias": (f"{_HERE}.sampling_bias", "Weights on head and tail (Rawat et al. 2021)."),
    "negative-mining": (f"{_HERE}.negative_mining", "Hard negatives (Reddi et al. 2019)."),
    "adversarial": (f"{_HERE}.adversarial.experiment", "The label tree (Bamler & Mandt 2020)."),
    "blend": (f"{_HERE}.blend", "The blend without an encoder, its parts left out in turn."),
    "depl": (f"{_HERE}.depl.experiment", "Ablations of DEPL (Zhang et al. 2023)."),
}
"""By the name of the command: the module, whose `command` it is, and what the list says of it."""


class Experiments(TyperGroup):
    """Imports the module of an experiment, which brings PyTorch, when its command is asked for."""

    _is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Return the names of the commands."""
        return list(EXPERIMENTS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Return a command; None where there is none of this name."""
        if cmd_name not in EXPERIMENTS:
            return None
        module, summary = EXPERIMENTS[cmd_name]
        if self._is_listing:
            return TyperCommand(cmd_name, help=summary)
        app = typer.Typer(add_completion=False)
        app.command(cmd_name)(import_module(module).command)
        return typer.main.get_command(app)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands without importing them."""
        self._is_listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_listing = False


def make_experiment_app() -> typer.Typer:
    """Return the group of commands."""
    app = typer.Typer(cls=Experiments, no_args_is_help=True, help=_HELP)
    app.callback()(_group)  # Typer sees no command in it, and would make no group
    return app


def _group() -> None: ...
