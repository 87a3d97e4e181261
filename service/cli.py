"""The commands of the service: `longtail serve` and `longtail registry ...`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.predict_cli import predict

if TYPE_CHECKING:  # imported inside the commands, so that --help stays fast
    from models.labels import Label
    from models.manifest import Manifest
    from models.registry import Registry

registry_app = typer.Typer(no_args_is_help=True, help="Look at model versions and choose one.")

RegistryOption = Annotated[
    Path, typer.Option("--registry", envvar="LONGTAIL_REGISTRY", help="Folder of the registry.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
VersionArgument = Annotated[str, typer.Argument(help="A version's number, or 'current'.")]
NumberArgument = Annotated[int, typer.Argument(min=1, help="A version's number.")]
DEFAULT_REGISTRY = Path("registry")


def add_commands(app: typer.Typer) -> None:
    """Register `serve` and `registry` on the command of the whole product."""
    app.command("serve")(serve)
    app.command("predict")(predict)
    app.command("key")(key)
    app.add_typer(registry_app, name="registry")


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
    from models.outputs import check_not_device
    from models.registry import Registry
    from service.address import check_address, telling_failed_start
    from service.app import create_app
    from service.compute_threads import prepare_process
    from service.logs import configure_logging
    from service.settings import load_settings
    from service.shutdown import serve as serve_until_stopped

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


def key(
    name: Annotated[str, typer.Argument(help="Who will use it; told in the log.")],
    as_json: JsonOption = False,
) -> None:
    """Make a key for the service, and the line that lets it in; the key is told only here."""
    from service.keys import make_key

    made, entry = make_key(name)
    if as_json:
        _print_json({"key": made, "entry": entry})
    else:
        print(f"Key, for the client:  {made}\nLine, for the service: {entry}")


@registry_app.command("list")
def list_versions(registry: RegistryOption = DEFAULT_REGISTRY, as_json: JsonOption = False) -> None:
    """List all versions, the current one marked with a star."""
    store = _registry(registry)
    rows = [_summary(store, version) for version in store.versions()]
    if as_json:
        _print_json(rows)
    elif not rows:
        print(f"No versions in {str(registry)!r}; train one with 'longtail train'.")
    else:
        _print_table(
            ("", "VERSION", "PUBLISHED", "LABELS", "DEFAULT SCORER", "DIGEST"),
            [
                (
                    "*" if row["current"] else "",
                    row["version"],
                    row["published_at"] or "unknown",
                    row.get("label_count", "?"),
                    row.get("default_scorer", row.get("problem", "")),
                    row.get("digest", "")[:12],
                )
                for row in rows
            ],
        )


@registry_app.command()
def show(
    version: VersionArgument = "current",
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: JsonOption = False,
) -> None:
    """Show what one version says of itself; reads its manifest only."""
    from models.bundle import read_manifest
    from service.version_summary import metric_rows, version_rows

    store = _registry(registry)
    number = store.resolve(version)
    manifest = read_manifest(store.folder_of(number))
    if as_json:
        _print_json(_content(store, number, manifest))
        return
    is_current = number == store.current()
    _print_table((), version_rows(manifest, number, store.published_at(number), is_current))
    if rows := metric_rows(manifest):
        print()
        _print_table(rows[0], rows[1:])
    print(f"\nEverything that the manifest says: longtail registry show {number} --json")


@registry_app.command()
def verify(
    version: VersionArgument = "current",
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: JsonOption = False,
) -> None:
    """Read every file of one version and compare it with the manifest."""
    store = _registry(registry)
    number = store.resolve(version)
    manifest = store.open(number).manifest
    size_bytes = sum(info.size_bytes for info in manifest.files.values())
    if as_json:
        found = {"version": number, "digest": manifest.digest}
        _print_json(found | {"num_files": len(manifest.files), "size_bytes": size_bytes})
    else:
        print(
            f"Version {number} is whole: {len(manifest.files)} files, "
            f"{size_bytes / 1e6:.1f} MB, digest {manifest.digest}"
        )


@registry_app.command()
def activate(
    version: NumberArgument,
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: JsonOption = False,
) -> None:
    """Verify a version and let `current` name it."""
    store = _registry(registry)
    before = store.current()
    store.activate(version)
    _print_move(before, version, as_json)


@registry_app.command()
def rollback(registry: RegistryOption = DEFAULT_REGISTRY, as_json: JsonOption = False) -> None:
    """Let `current` name the version that it named before."""
    store = _registry(registry)
    before = store.current()
    _print_move(before, store.rollback(), as_json)


@registry_app.command()
def remove(
    version: NumberArgument,
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: JsonOption = False,
) -> None:
    """Delete a version for good; the current one is refused."""
    _registry(registry).remove(version)
    if as_json:
        _print_json({"removed": version})
    else:
        print(f"Version {version} is removed.")


@registry_app.command("add-label")
def add_label(
    label_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Of the label.")] = None,
    name: Annotated[str | None, typer.Argument(help="What people read.")] = None,
    description: Annotated[str, typer.Option(help="A text about the label.")] = "",
    source: Annotated[
        Path | None,
        typer.Option("--file", help="JSON lines with id, name, description instead; or .gz."),
    ] = None,
    version: Annotated[
        str, typer.Option(help="The version to add to: a number, or 'current'.")
    ] = "current",
    move: Annotated[
        bool, typer.Option("--activate", help="Let 'current' name the new version.")
    ] = False,
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: JsonOption = False,
) -> None:
    """Add labels to a model without training, as a new version; its encoder reads their text."""
    from tqdm import tqdm

    from models.added_labels import add_labels, equal_names
    from models.bundle import read_manifest

    labels = _new_labels(label_id, name, description, source)
    store = _registry(registry)
    number = store.resolve(version)
    store.check_writable()
    bundle = store.open(number)
    for warning in equal_names(bundle.catalogue, labels):
        print(f"Warning: {warning}", file=sys.stderr)
    with tqdm(total=len(labels), desc="new labels", unit="label") as bar:
        write = add_labels(bundle, labels, bar.update)
    made = store.publish(write, activate=move)
    manifest = read_manifest(store.folder_of(made))
    if as_json:
        found = {"version": made, "from_version": number, "num_added": len(labels)}
        _print_json(
            found
            | {"label_count": manifest.label_count, "digest": manifest.digest}
            | {"current": store.current()}
        )
        return
    print(f"Version {made} has {manifest.label_count} labels, {len(labels)} more than {number}.")
    print(f"Digest {manifest.digest}")
    print(f"Current is version {store.current()}.")


@registry_app.command("split")
def split(
    output: Annotated[
        Path, typer.Option(help="Folder for the registries of the shards: 0, 1, ...")
    ],
    shards: Annotated[int, typer.Option(min=1, help="How many.")],
    version: Annotated[str, typer.Option(help="A version's number, or 'current'.")] = "current",
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: JsonOption = False,
) -> None:
    """Split the labels of a model into shards, each of which a service of its own can serve."""
    from tqdm import tqdm

    from models.outputs import check_not_in_registry, check_writable_folder
    from models.sharding import publish_shards

    check_not_in_registry(output, registry, "--output")
    check_writable_folder(output, "--output")
    bundle = _registry(registry).open(version)
    with tqdm(total=shards, desc="shards", unit="shard") as bar:
        made = publish_shards(bundle, shards, output, bar.update)
    if as_json:
        _print_json(asdict(made))
        return
    print(f"{shards} shards of {made.shard_sizes[0]} labels, or one fewer, are in {output}.")
    print("Serve each with 'longtail serve --registry', and ask all by 'service.shard_client'.")


def _new_labels(
    label_id: str | None, name: str | None, description: str, source: Path | None
) -> list[Label]:
    """Return the labels of a file, or the one that is named.

    Raises:
        ConfigError: Neither is asked for in full, or both.
    """
    from models.added_labels import read_new_labels
    from models.errors import ConfigError
    from models.labels import Label
    from models.outputs import check_readable_file

    if source is None and label_id is not None and name is not None:
        return [Label(label_id, name, description)]
    if source is not None and label_id is None and not description:
        check_readable_file(source, "--file")
        return read_new_labels(source)
    came = {"ID": label_id, "NAME": name, "--description": description, "--file": source}
    given = ", ".join(key for key, value in came.items() if value) or "nothing"
    raise ConfigError(f"add-label: {given} came; wanted ID and NAME, or --file alone")


def _registry(folder: Path) -> Registry:
    from models.registry import Registry

    return Registry(folder)


def _summary(store: Registry, version: int) -> dict[str, Any]:
    """Return one row of the list; a version that can't be read says why instead of what."""
    from models.bundle import read_manifest
    from models.errors import BundleError

    row = {
        "version": version,
        "current": version == store.current(),
        "published_at": store.published_at(version),
    }
    try:
        manifest = read_manifest(store.folder_of(version))
    except BundleError as error:
        return row | {"problem": str(error)}
    return row | {
        "label_count": manifest.label_count,
        "scorers": list(manifest.scorers),
        "default_scorer": manifest.default_scorer,
        "digest": manifest.digest,
    }


def _content(store: Registry, version: int, manifest: Manifest) -> dict[str, Any]:
    return {
        "version": version,
        "current": version == store.current(),
        "published_at": store.published_at(version),
    } | asdict(manifest)


def _print_move(before: int | None, now: int, as_json: bool) -> None:
    if as_json:
        _print_json({"before": before, "current": now})
        return
    print(f"Current is version {now} (before: {before or 'none'}).")
    print("A running service follows within its LONGTAIL_WATCH_INTERVAL_S.")


def _print_json(content: object) -> None:
    print(json.dumps(content, indent=2, ensure_ascii=False))


def _print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print columns aligned to their widest cell, the last one ragged."""
    lines = [[str(cell) for cell in row] for row in ([head] if head else []) + list(rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)]
    for *cells, last in lines:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        print("  ".join([*padded, last]).rstrip())
