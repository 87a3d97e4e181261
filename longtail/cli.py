"""The command `longtail`: its assembly, and how failures are printed."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.extensions import extensions
from longtail.models.files.failures import (
    DEBUG_VARIABLE,
    INTERRUPTED,
    READER_GONE,
    CommandStoppedError,
    doing,
    explain,
)
from longtail.models.platform import prepare_output

if TYPE_CHECKING:  # imported inside the functions, so that a failed import is reported
    import typer

_FIRST_COMMANDS = (
    "demo", "inspect", "train", "evaluate", "report", "serve", "predict", "learn", "promote",
    "compare",
)  # fmt: skip


@cache
def command() -> typer.Typer:
    """Return the command with all installed subcommands; the image of the service cannot train."""
    import typer
    from typer.core import TyperGroup

    class Commands(TyperGroup):
        """The commands; `main` reports what stops one, whichever release of Typer runs it."""

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt as error:
                raise CommandStoppedError(INTERRUPTED) from error
            except BrokenPipeError as error:
                raise CommandStoppedError(READER_GONE) from error
            except Exception as error:
                if find_spec("longtail.training"):
                    from longtail.training.commands.options import advise

                    advise(error)
                raise

    app = typer.Typer(
        cls=Commands,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Labels for texts out of very large label sets, right for rare labels too.",
        epilog="Exit status: 0 done; 1 failed, the last line on stderr says why; 2 the command "
        "line can't be read; 130 interrupted; 141 the reader of the output went away.",
    )
    debugging = typer.Option(
        False, "--debug", help=f"Show the traceback of an error ({DEBUG_VARIABLE}=1)."
    )
    more_logs = typer.Option(False, "--verbose", "-v", help="Log every stage of a command.")
    release = typer.Option(
        False,
        "--version",
        help="Show the version of Longtail and exit.",
        callback=_print_version,
        is_eager=True,
    )

    @app.callback()
    def prepare(
        debug: bool = debugging,  # noqa: ARG001  # read by `main`, before the command
        verbose: bool = more_logs,
        version: bool = release,  # noqa: ARG001  # done by its callback
    ) -> None:
        """Labels for texts out of very large label sets, right for rare labels too."""
        logging.getLogger("longtail").setLevel(logging.INFO if verbose else logging.NOTSET)
        _refuse_unknown_variables()

    _add_commands(app)
    _arrange(app)
    return app


def _add_commands(app: typer.Typer) -> None:
    """Register all that is installed: the image of the service cannot train."""
    import longtail.service.cli
    from longtail.commands.add_label import add_label
    from longtail.service.commands.registry import registry_app

    if find_spec("longtail.training"):
        import longtail.training.cli
        from longtail.commands.demo import demo

        longtail.training.cli.add_commands(app)
        app.command("demo")(demo)
    longtail.service.cli.add_commands(app)
    registry_app.command("add-label")(add_label)
    _add_extensions(app)


def _add_extensions(app: typer.Typer) -> None:
    """Register the commands of extensions, each in its group."""
    groups = {group.name: group.typer_instance or app for group in app.registered_groups}
    for extension in extensions():
        for each in extension.commands():
            groups.get(each.group, app).command(each.name)(each.function)


def _arrange(app: typer.Typer) -> None:
    """Put the commands in the order in which people need them, and the others below."""
    order = {name: i for i, name in enumerate(_FIRST_COMMANDS)}
    app.registered_commands.sort(key=lambda each: order.get(each.name or "", len(order)))
    for each in app.registered_commands:
        each.rich_help_panel = "Commands" if each.name in order else "More commands"
    for group in app.registered_groups:
        group.rich_help_panel = "More commands"


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import PackageNotFoundError, version

        import typer

        try:
            print(f"longtail {version('longtail')}")
        except PackageNotFoundError:
            print("longtail, run from a folder and not installed: its version is not known")
        raise typer.Exit


def _refuse_unknown_variables() -> None:
    if not any(name.upper().startswith("LONGTAIL_") for name in os.environ):
        return  # the settings take a while to import
    from longtail.service.settings import refuse_unknown_variables

    refuse_unknown_variables(os.environ)


def main() -> None:
    """Run the command. A failure is printed as one sentence; a traceback only on request."""
    prepare_output()
    try:
        _run()
    except Exception as error:  # noqa: BLE001  # the last resort, which ends the process
        sys.exit(_tell(error))
    except KeyboardInterrupt as error:
        sys.exit(_tell(error))


def _run() -> None:
    try:
        command()(prog_name="longtail")
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # what prints the help ends with 1
            raise CommandStoppedError(READER_GONE) from error
        raise
    finally:
        with doing("writing to", Path("standard output")):
            sys.stdout.flush()


def _tell(error: BaseException) -> int:
    """Print why a command failed and return its exit status."""
    if isinstance(error, OSError | CommandStoppedError):
        _let_go_of_stdout()
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    failure = explain(error, command)
    with suppress(OSError):  # nobody may read stderr either
        if _is_debugging():
            import traceback

            traceback.print_exception(error)
        if failure.message:
            print(failure.message, file=sys.stderr, flush=True)
    return failure.status


def _is_debugging() -> bool:
    return "--debug" in sys.argv[1:2] or os.environ.get(DEBUG_VARIABLE, "") not in {"", "0"}


def _let_go_of_stdout() -> None:
    """Point stdout to nowhere if it can't be written: Python would fail once more at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
