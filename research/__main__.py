"""`python -m research`: repeat the papers' experiments on a corpus, in the folder of the source."""

from __future__ import annotations

import sys

import typer

from longtail.models.errors import LongtailError
from longtail.models.files.failures import explain
from research.diagnosis.command import diagnose
from research.experiments import blend, negative_mining, sampling_bias
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
app.command("blend")(blend.command)
app.command("depl")(depl.command)
app.command("diagnose")(diagnose)


def main() -> None:
    """Run the command; a failure ends it with one sentence."""
    try:
        app(prog_name="python -m research")
    except (LongtailError, OSError) as error:
        sys.exit(explain(error).message)


if __name__ == "__main__":
    main()
