"""`longtail registry`: look at model versions and choose one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.service.commands.options import (
    DEFAULT_REGISTRY,
    JsonOption,
    NumberArgument,
    RegistryOption,
    VersionArgument,
    print_json,
)

if TYPE_CHECKING:  # imported inside the commands, so that --help stays fast
    from longtail.models.bundle.manifest import Manifest
    from longtail.models.bundle.registry import Registry


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
    from longtail.service.commands.version_summary import metric_rows, version_rows

    store = registry_at(registry)
    number = store.resolve(version)
    manifest = read_manifest(store.folder_of(number))
    if as_json:
        print_json(_content(store, number, manifest))
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
    words: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Words or names, as of persons, in UTF-8: say which of them the files hold, and "
            "exit with status 1 if they hold any.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare every file of one version with the manifest, and let each scorer answer texts."""
    from longtail.models.parts.audit import audit_bundle
    from longtail.models.predict.trial import check_answers
    from longtail.service.commands.audit import read_words, refuse_words

    wanted = [] if words is None else read_words(words)
    store = registry_at(registry)
    number = store.resolve(version)
    bundle = store.open(number)
    check_answers(bundle)
    manifest = bundle.manifest
    size_bytes = sum(info.size_bytes for info in manifest.files.values())
    held = list(audit_bundle(bundle, wanted)) if wanted else []
    if as_json:
        found: dict[str, Any] = {"version": number, "digest": manifest.digest}
        found |= {"num_files": len(manifest.files), "size_bytes": size_bytes}
        if words is not None:
            found |= {"num_words": len(wanted), "findings": [asdict(each) for each in held]}
        print_json(found)
    else:
        print(
            f"Version {number} is whole: {len(manifest.files)} files, "
            f"{size_bytes / 1e6:.1f} MB, digest {manifest.digest}"
        )
        if held:
            rows = [(x.word, x.file, x.num_places, x.places[0], ", ".join(x.labels)) for x in held]
            print_table(("WORD", "FILE", "PLACES", "FIRST", "LABELS"), rows)
        elif words is not None:
            print(f"It holds none of {len(wanted)} words.")
    if words is not None:
        refuse_words(held, number, words, len(wanted))


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
    """Return a registry.

    Raises:
        BundleNotFoundError: The folder is that of one version.
    """
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
    """Return a registry whose folder is there.

    Raises:
        BundleNotFoundError: It is not, or as `registry_at`.
    """
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


def _list_changes(store: Registry, as_json: bool) -> None:
    """Print all changes of a registry: when, who, what, and what `current` named then."""
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


def _content(store: Registry, version: int, manifest: Manifest) -> dict[str, Any]:
    return {
        "version": version,
        "current": version == store.current(),
        "published_at": store.published_at(version),
    } | asdict(manifest)


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
