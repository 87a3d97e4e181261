"""`longtail serve`: an option for each setting of the service, made from `service.settings`."""

from __future__ import annotations

import errno
import inspect
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from longtail.models.errors import ConfigError, LongtailError

if TYPE_CHECKING:
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


_UVICORN_FAILED = 3
"""The status of a server that did not start, which other commands don't have."""


class ServeError(LongtailError):
    """The service could not start."""


def check_address(host: str, port: int) -> None:
    """Check that an address can be listened on, before anything is loaded for it."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as probe:
                # As the server will do, so that what it may take over is not refused here.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} of {host!r} is taken by another process, which may still be "
                "stopping; wait for it or stop it, or choose another port with --port or "
                "LONGTAIL_PORT (0 takes a free one)"
            ) from error
        raise ConfigError(
            f"can't listen on port {port} of {host!r} ({reason}); choose another port with --port, "
            "or an address of this machine with --host"
        ) from error


@contextmanager
def telling_failed_start() -> Iterator[None]:
    """Turn the exit of a server that did not start into an error of ours."""
    try:
        yield
    except SystemExit as end:
        if end.code != _UVICORN_FAILED:
            raise
        raise ServeError("the service did not start; its log above says why") from end
