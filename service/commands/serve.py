"""`longtail serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def serve(
    registry: Annotated[
        Path | None, typer.Option(help="Folder of the registry.", show_default="registry")
    ] = None,
    versions: Annotated[
        str | None,
        typer.Option(
            help="Versions to load: numbers or 'current', with commas.", show_default="current"
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on; 0.0.0.0 for all.", show_default="127.0.0.1"),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="TCP port; 0 takes a free one.", show_default="8000")
    ] = None,
    root_path: Annotated[
        str | None,
        typer.Option(help="Path under which a proxy serves it, as /labels.", show_default="none"),
    ] = None,
    max_texts_per_request: Annotated[
        int | None, typer.Option(help="Most texts in one request.", show_default="64")
    ] = None,
    max_text_characters: Annotated[
        int | None, typer.Option(help="Most characters in one text.", show_default="100000")
    ] = None,
    max_body_bytes: Annotated[
        int | None, typer.Option(help="Most bytes in one request.", show_default="4194304")
    ] = None,
    max_k: Annotated[
        int | None, typer.Option(help="Most labels for one text.", show_default="1000")
    ] = None,
    max_filter_labels: Annotated[
        int | None,
        typer.Option(help="Most label ids that a request may name.", show_default="10000"),
    ] = None,
    max_explained_labels: Annotated[
        int | None, typer.Option(help="Most labels explained in a request.", show_default="100")
    ] = None,
    label_sets: Annotated[
        Path | None, typer.Option(help="Folder of stored label sets.", show_default="none")
    ] = None,
    max_batch_tokens: Annotated[
        int | None,
        typer.Option(help="Most tokens computed together.", show_default="chosen by the device"),
    ] = None,
    max_queue_tokens: Annotated[
        int | None, typer.Option(help="Most tokens that may be waiting.", show_default="65536")
    ] = None,
    request_timeout_s: Annotated[
        float | None, typer.Option(help="Seconds for one request.", show_default="30")
    ] = None,
    max_streams: Annotated[
        int | None, typer.Option(help="Most batch streams at a time.", show_default="16")
    ] = None,
    stream_idle_timeout_s: Annotated[
        float | None,
        typer.Option(help="Seconds that a batch stream may stand still.", show_default="60"),
    ] = None,
    keep_alive_s: Annotated[
        int | None,
        typer.Option(help="Seconds that an idle connection stays open.", show_default="75"),
    ] = None,
    read_timeout_s: Annotated[
        float | None,
        typer.Option(help="Seconds for a request's head or body to come.", show_default="60"),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="auto, float32, bfloat16, onnx-float32 or onnx-int8.", show_default="auto"
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="cpu or cuda (the first GPU).", show_default="chosen by itself"),
    ] = None,
    num_threads: Annotated[
        int | None, typer.Option(help="Threads for computing.", show_default="chosen by itself")
    ] = None,
    compute_workers: Annotated[
        int | None,
        typer.Option(
            help="Batches at a time, which share the threads.", show_default="chosen by itself"
        ),
    ] = None,
    shutdown_timeout_s: Annotated[
        int | None, typer.Option(help="Seconds for requests in flight to end.", show_default="30")
    ] = None,
    drain_delay_s: Annotated[
        float | None,
        typer.Option(help="Seconds to go on accepting after SIGTERM.", show_default="5"),
    ] = None,
    registry_source: Annotated[
        str | None,
        typer.Option(help="URI of a registry to copy versions from.", show_default="none"),
    ] = None,
    watch_interval_s: Annotated[
        float | None,
        typer.Option(help="Seconds between looks at 'current'; 0: never.", show_default="10"),
    ] = None,
    swap_mode: Annotated[
        str | None,
        typer.Option(
            help="availability-preserving or resource-preserving.",
            show_default="availability-preserving",
        ),
    ] = None,
    memory_factor: Annotated[
        float | None,
        typer.Option(help="Free memory to load a version, in sizes of it.", show_default="2"),
    ] = None,
    canary_version: Annotated[
        int | None, typer.Option(help="Version to try on a share.", show_default="none")
    ] = None,
    canary_share: Annotated[
        float | None, typer.Option(help="Its share, from 0 to 1.", show_default="0")
    ] = None,
    admin_keys: Annotated[
        str | None, typer.Option(help="NAME:SHA256 of admin keys.", show_default="none")
    ] = None,
    admin_keys_file: Annotated[
        Path | None, typer.Option(help="File with admin keys.", show_default="none")
    ] = None,
    api_keys: Annotated[
        str | None, typer.Option(help="NAME:SHA256 of keys to ask.", show_default="none")
    ] = None,
    api_keys_file: Annotated[
        Path | None, typer.Option(help="File with keys to ask.", show_default="none")
    ] = None,
    cors_origins: Annotated[
        str | None,
        typer.Option(help="Origins whose pages may ask, with commas.", show_default="none"),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(help="Language of texts and labels, for Annif's clients.", show_default="en"),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error.", show_default="info")
    ] = None,
    log_format: Annotated[
        str | None, typer.Option(help="text, or json.", show_default="text")
    ] = None,
    otel: Annotated[
        bool | None,
        typer.Option(help="Send traces by OpenTelemetry.", show_default="chosen by itself"),
    ] = None,
) -> None:
    """Serve models over HTTP.

    Each option has a variable too, such as LONGTAIL_PORT for --port; the option wins.
    """
    chosen = {name: value for name, value in locals().items() if value is not None}
    from models.bundle.registry import Registry
    from models.files.outputs import check_not_device
    from service.app import create_app
    from service.process.address import check_address, telling_failed_start
    from service.process.compute_threads import prepare_process
    from service.server import serve as serve_until_stopped
    from service.settings import load_settings
    from service.telemetry.logs import configure_logging

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
