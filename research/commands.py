"""The commands of `python -m research`."""

from __future__ import annotations

import typer

from research.diagnosis.command import diagnose
from research.experiments import negative_mining, sampling_bias
from research.experiments.adversarial import experiment as adversarial
from research.experiments.depl import experiment as depl

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Repeat the papers' experiments on a corpus; an interrupted one resumes.",
)
app.command("sampling-bias")(sampling_bias.command)
app.command("negative-mining")(negative_mining.command)
app.command("adversarial")(adversarial.command)
app.command("depl")(depl.command)
app.command("diagnose")(diagnose)
