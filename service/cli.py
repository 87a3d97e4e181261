"""The commands of the service: `longtail serve` and `longtail registry ...`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:  # imported inside the commands, so that --help stays fast
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
    device: Annotated[
        str | None,
        typer.Option(help="cpu or cuda (the first GPU).", show_default="chosen by itself"),
    ] = None,
    num_threads: Annotated[
        int | None, typer.Option(help="Threads for computing.", show_default="chosen by itself")
    ] = None,
    shutdown_timeout_s: Annotated[
        int | None, typer.Option(help="Seconds for requests in flight to end.", show_default="30")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error.", show_default="info")
    ] = None,
) -> None:
    """Serve models over HTTP.

    Each option has a variable too, such as LONGTAIL_PORT for --port; the option wins.
    """
    chosen = {name: value for name, value in locals().items() if value is not None}
    import uvicorn

    from models.registry import Registry
    from service.app import create_app
    from service.settings import load_settings
    from service.telemetry import configure_logging

    settings = load_settings(**chosen)
    for version in settings.versions:  # a missing one stops the start here, in one line
        Registry(settings.registry).resolve(version)
    configure_logging(settings.log_level)
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,
    )


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

    store = _registry(registry)
    number = store.resolve(version)
    content = _content(store, number, read_manifest(store.folder_of(number)))
    if as_json:
        _print_json(content)
    else:
        _print_table((), [(f"{name}:", _inline(value)) for name, value in content.items()])


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
    print("A running service keeps what it has loaded: restart it.")


def _inline(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _print_json(content: object) -> None:
    print(json.dumps(content, indent=2, ensure_ascii=False))


def _print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print columns aligned to their widest cell, the last one ragged."""
    lines = [[str(cell) for cell in row] for row in ([head] if head else []) + list(rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)]
    for *cells, last in lines:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        print("  ".join([*padded, last]).rstrip())
