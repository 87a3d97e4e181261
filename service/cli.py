"""The commands of the service: `longtail serve`, `predict`, `registry`, `feedback`, ..."""

from __future__ import annotations

from typing import Annotated

import typer

from longtail.service.commands.feedback import feedback_app
from longtail.service.commands.predict import predict
from longtail.service.commands.registry import JsonOption, print_json, registry_app
from longtail.service.commands.serve import PASSED_ON, serve
from longtail.service.commands.sharing import pull, push


def add_commands(app: typer.Typer) -> None:
    """Register `serve` and `registry` on the command of the whole product."""
    app.command("serve", context_settings=PASSED_ON, add_help_option=False)(serve)
    app.command("predict", context_settings=PASSED_ON, add_help_option=False)(predict)
    app.command("key")(key)
    app.command("push")(push)
    app.command("pull")(pull)
    app.add_typer(registry_app, name="registry")
    app.add_typer(feedback_app, name="feedback")


def key(
    name: Annotated[str, typer.Argument(help="Who will use it; shown in the log.")],
    as_json: JsonOption = False,
) -> None:
    """Make a key for the service, and the line that lets it in; the key is shown only here."""
    from longtail.service.http.api_keys import make_key

    made, entry = make_key(name)
    if as_json:
        print_json({"key": made, "entry": entry})
    else:
        print(f"Key, for the client:  {made}\nLine, for the service: {entry}")
