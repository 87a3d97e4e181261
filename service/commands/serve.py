"""`longtail serve`: an option for each setting of the service, made from `service.settings`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:  # imported inside the command, so that --help of the others stays fast
    from longtail.service.settings import SettingDescription

PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
"""For the context of `serve`, which leaves all that it is given to the command with the options."""


def serve(ctx: typer.Context) -> None:
    """Serve models over HTTP.

    Each option has a variable too, such as LONGTAIL_PORT for --port; the option wins.
    """
    serve_command()(args=ctx.args, prog_name=ctx.command_path, standalone_mode=False)


def serve_command() -> typer.Typer:
    """Return the command with all options; importing the settings takes a while."""
    from longtail.service.settings import describe_settings

    def run(**chosen: Any) -> None:
        _run({name: value for name, value in chosen.items() if value is not None})

    options = [_option(each) for each in describe_settings()]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]  # Typer reads it
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(help=serve.__doc__)(run)
    return app


def _option(setting: SettingDescription) -> inspect.Parameter:
    """Return the option of a setting; one that is not given leaves it to variable and default."""
    option = typer.Option(None, help=_help(setting), show_default=setting.default)
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=option,
        annotation=setting.kind | None,
    )


def _help(setting: SettingDescription) -> str:
    text = setting.help.replace("`", "'")
    if setting.choices:
        return f"{text} One of {', '.join(setting.choices)}."
    return f"{text} From {setting.bounds}." if " to " in setting.bounds else text


def _run(chosen: dict[str, Any]) -> None:
    from longtail.models.bundle.registry import Registry
    from longtail.models.files.outputs import check_not_device
    from longtail.service.app import create_app
    from longtail.service.process.address import check_address, telling_failed_start
    from longtail.service.process.compute_threads import prepare_process
    from longtail.service.server import serve as serve_until_stopped
    from longtail.service.settings import load_settings
    from longtail.service.telemetry.logs import configure_logging

    settings = load_settings(**chosen)
    for option, path in (
        ("--admin-keys-file", settings.admin_keys_file),
        ("--api-keys-file", settings.api_keys_file),
    ):
        if path is not None:
            check_not_device(path, option)
    check_address(settings.host, settings.port)
    for version in () if settings.registry_source else settings.versions:
        Registry(settings.registry).resolve(version)  # a missing one stops the start, in one line
    configure_logging(settings.log_level, settings.log_format)
    prepare_process(settings.num_threads)
    with telling_failed_start():
        serve_until_stopped(create_app(settings))
