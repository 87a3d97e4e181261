"""`longtail registry`: look at model versions and choose one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from longtail.models.bundle.manifest import Manifest
    from longtail.models.bundle.registry import Registry


_ALL_LABELS = "all"
Rows = list[tuple[str, ...]]


def version_rows(
    manifest: Manifest, number: int, published_at: str | None, is_current: bool
) -> Rows:
    """Return names and values: what the version is and was made of."""
    encoder = manifest.encoder
    size = sum(info.size_bytes for info in manifest.files.values())
    rows = {
        "version": f"{number}{' (current)' if is_current else ''}",
        "published": published_at or "unknown",
        "labels": manifest.labels_in_words,
        "trained on": f"{manifest.training_document_count:,} documents",
        "encoder": "none"
        if encoder is None
        else f"{encoder.name}, {encoder.dim} dimensions, {encoder.max_tokens} tokens",
        "scorers": ", ".join(manifest.scorers),
        "default scorer": manifest.default_scorer,
        "chosen on": manifest.chosen_on,
        "probabilities": ", ".join(manifest.calibrations) or "not calibrated",
        "size": f"{size / 1e6:.1f} MB in {len(manifest.files)} files",
        "digest": manifest.digest,
    }
    return [(f"{name}:", value) for name, value in rows.items()]


def metric_rows(manifest: Manifest) -> Rows:
    """Return a table of the main metrics on the dev split or what stood for it, in percent.

    Empty without them.
    """
    from longtail.models.metrics import shown_in

    measured = {
        scorer: values
        for scorer, subsets in manifest.metrics.get("dev", {}).items()
        if isinstance(subsets, dict) and (values := subsets.get(_ALL_LABELS))
    }
    names = [x for x in shown_in("registry") if any(x in values for values in measured.values())]
    if not names:
        return []
    rows: Rows = [(f"{manifest.chosen_on.removeprefix('the ').upper()}, %", *names)]
    for scorer, values in measured.items():
        cells = (f"{100 * values[name]:.1f}" if name in values else "-" for name in names)
        rows.append((scorer, *cells))
    return rows


RegistryOption = Annotated[
    Path, typer.Option("--registry", envvar="LONGTAIL_REGISTRY", help="Folder of the registry.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
VersionArgument = Annotated[str, typer.Argument(help="A version's number, or 'current'.")]
NumberArgument = Annotated[int, typer.Argument(min=1, help="A version's number.")]
TextColumnsOption = Annotated[
    str | None,
    typer.Option(
        help="Columns (or fields) of the text, between commas, joined in this order.",
        show_default="title and text, content or abstract",
    ),
]
IdColumnOption = Annotated[
    str | None, typer.Option(help="Column (or field) of the id.", show_default="id")
]
DeviceOption = Annotated[
    str | None, typer.Option(help="cpu or cuda (the first GPU).", show_default="automatic")
]
ThreadsOption = Annotated[
    int | None, typer.Option(min=1, help="Threads for computing.", show_default="automatic")
]
DEFAULT_REGISTRY = Path("registry")


def print_json(content: object) -> None:
    """Print an answer for programs on stdout."""
    print(json.dumps(content, indent=2, ensure_ascii=False))


registry_app = typer.Typer(no_args_is_help=True, help="Look at model versions and choose one.")


@registry_app.command("list")
def list_versions(
    registry: RegistryOption = DEFAULT_REGISTRY,
    changes: Annotated[
        bool, typer.Option("--changes", help="List instead who changed what, and when (UTC).")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List all versions, the current one marked with a star."""
    store = existing_registry(registry)
    if changes:
        _list_changes(store, as_json)
        return
    rows = [_summary(store, version) for version in store.versions()]
    if as_json:
        print_json(rows)
    elif not rows:
        print(f"No versions in {str(registry)!r}; train one with 'longtail train'.")
    else:
        print_table(
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
    from longtail.models.bundle.bundle import read_manifest

    store = registry_at(registry)
    number = store.resolve(version)
    manifest = read_manifest(store.folder_of(number))
    if as_json:
        print_json(_place_of(store, number) | asdict(manifest))
        return
    is_current = number == store.current()
    print_table((), version_rows(manifest, number, store.published_at(number), is_current))
    if rows := metric_rows(manifest):
        print()
        print_table(rows[0], rows[1:])
    where = "" if registry == DEFAULT_REGISTRY else f" --registry {shlex.quote(str(registry))}"
    print(f"\nEverything that the manifest says: longtail registry show {number}{where} --json")


@registry_app.command()
def verify(
    version: VersionArgument = "current",
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: JsonOption = False,
) -> None:
    """Compare every file of one version with the manifest, and let each scorer answer texts."""
    from longtail.models.predict.trial import check_answers

    store = registry_at(registry)
    number = store.resolve(version)
    bundle = store.open(number)
    check_answers(bundle)
    manifest = bundle.manifest
    size_bytes = sum(info.size_bytes for info in manifest.files.values())
    if as_json:
        result = {"version": number, "digest": manifest.digest}
        print_json(result | {"num_files": len(manifest.files), "size_bytes": size_bytes})
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
    """Verify a version, let each of its scorers answer texts, and let `current` name it."""
    from longtail.models.predict.trial import check_answers

    store = registry_at(registry)
    before = store.current()
    store.activate(version, check=check_answers)
    _print_move(before, version, as_json)


@registry_app.command()
def rollback(registry: RegistryOption = DEFAULT_REGISTRY, as_json: JsonOption = False) -> None:
    """Let `current` name the version that it named before."""
    store = registry_at(registry)
    before = store.current()
    _print_move(before, store.rollback(), as_json)


@registry_app.command()
def remove(
    version: NumberArgument,
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: JsonOption = False,
) -> None:
    """Delete a version for good; the current one is refused."""
    registry_at(registry).remove(version)
    if as_json:
        print_json({"removed": version})
    else:
        print(f"Version {version} is removed.")


def registry_at(folder: Path) -> Registry:
    """Return a registry."""
    from longtail.models.bundle.manifest import MANIFEST_NAME
    from longtail.models.bundle.registry import Registry
    from longtail.models.errors import BundleNotFoundError

    if (folder / MANIFEST_NAME).is_file():
        raise BundleNotFoundError(
            f"registry {str(folder)!r}: is the folder of one version; give that of the registry, "
            f"--registry {shlex.quote(str(folder.parent))}"
        )
    return Registry(folder)


def existing_registry(folder: Path) -> Registry:
    """Return a registry whose folder is there."""
    from longtail.models.errors import BundleNotFoundError

    if not folder.is_dir():
        raise BundleNotFoundError(
            f"registry {str(folder)!r}: there is no such folder; check the path, or train a "
            "version with 'longtail train'"
        )
    return registry_at(folder)


def _summary(store: Registry, version: int) -> dict[str, Any]:
    """Return one row of the list; a version that can't be read says why instead of what."""
    from longtail.models.bundle.bundle import read_manifest
    from longtail.models.errors import BundleError

    row = _place_of(store, version)
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


def _list_changes(store: Registry, as_json: bool) -> None:
    entries = store.changes.entries()
    if as_json:
        print_json(entries)
        return
    rows = [
        (
            each["at"],
            each.get("user") or f"key {each.get('key')}",
            each["action"],
            each["version"],
            f"{each['from'] or 'none'} -> {each['to'] or 'none'}",
            (each["digest"] or "unknown")[:12],
            each.get("request_id", ""),
        )
        for each in entries
    ]
    print_table(("WHEN", "WHO", "ACTION", "VERSION", "CURRENT", "DIGEST", "REQUEST"), rows)


def _place_of(store: Registry, version: int) -> dict[str, Any]:
    """Return what the registry says of a version."""
    state = store.state()
    return {
        "version": version,
        "current": version == state.current,
        "published_at": state.published_at.get(str(version)),
    }


def _print_move(before: int | None, now: int, as_json: bool) -> None:
    if as_json:
        print_json({"before": before, "current": now})
        return
    print(f"Current is version {now} (before: {before or 'none'}).")
    print("A running service follows within its LONGTAIL_WATCH_INTERVAL_S.")


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print columns aligned to their widest cell, the last one ragged."""
    lines = [[str(cell) for cell in row] for row in ([head] if head else []) + list(rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)]
    for *cells, last in lines:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        print("  ".join([*padded, last]).rstrip())
