"""`longtail registry`: look at model versions and choose one."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
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
    from longtail.models.labels.catalogue import Label


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

    store = _registry(registry)
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
    store = _registry(registry)
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

    store = _registry(registry)
    before = store.current()
    store.activate(version, check=check_answers)
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
        print_json({"removed": version})
    else:
        print(f"Version {version} is removed.")


@registry_app.command("add-label")
def add_label(
    context: typer.Context,
    label_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Of the label.")] = None,
    name: Annotated[str | None, typer.Argument(help="What people read.")] = None,
    description: Annotated[str, typer.Option(help="A text about the label.")] = "",
    source: Annotated[
        Path | None,
        typer.Option(
            "--file",
            help="A label file instead: JSON lines or CSV with id, name, description; or .gz.",
        ),
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(
            help="The version to add to: a number, or 'current'; without it the current one, "
            "unless another one has labels added to that."
        ),
    ] = None,
    move: Annotated[
        bool, typer.Option("--activate", help="Let 'current' name the new version.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="Measure on the dev split of this corpus: a folder or file.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Publish whatever share of first places it takes.")
    ] = False,
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: JsonOption = False,
) -> None:
    """Add labels to a model without training, as a new version; its encoder reads their text."""
    from tqdm import tqdm

    from longtail.models.bundle.bundle import read_manifest
    from longtail.models.edit.add_labels import (
        add_labels,
        check_ids_are_new,
        check_is_latest,
        equal_names,
    )
    from longtail.models.edit.effect import measured
    from longtail.models.errors import ConfigError

    if data is not None and context.obj is None:
        raise ConfigError("--data: nothing is installed that reads a corpus; leave it out")
    labels = _new_labels(label_id, name, description, source)
    store = _registry(registry)
    number = store.resolve(version or "current")
    store.check_writable()
    if version is None:
        check_is_latest(store, number, labels)
    else:
        check_ids_are_new(store.folder_of(number), labels)
    bundle = store.open(number)
    for warning in equal_names(bundle.catalogue, labels):
        print(f"Warning: {warning}", file=sys.stderr)
    with tqdm(total=len(labels), desc="new labels", unit="label") as bar:
        write = add_labels(bundle, labels, bar.update)
    # The training side reads corpora.
    on = None if data is None else context.obj(data, bundle)
    write = measured(write, bundle, on, partial(print, file=sys.stderr), force=force)
    made = store.publish(write, activate=move, action="add-label")
    manifest = read_manifest(store.folder_of(made))
    if as_json:
        found = {"version": made, "from_version": number, "num_added": len(labels)}
        print_json(
            found
            | {"label_count": manifest.label_count, "digest": manifest.digest}
            | {"current": store.current()}
        )
        return
    print(f"Version {made} has {manifest.label_count} labels, {len(labels)} more than {number}.")
    print(f"Digest {manifest.digest}")
    print(f"Current is version {store.current()}.")


def _new_labels(
    label_id: str | None, name: str | None, description: str, source: Path | None
) -> list[Label]:
    """Return the labels of a file, or the one that is named."""
    from longtail.models.errors import ConfigError
    from longtail.models.files.outputs import check_readable_file
    from longtail.models.labels.catalogue import Label
    from longtail.models.labels.files import form_of, read_label_file

    if source is None and label_id is not None and name is not None:
        return [Label(label_id, name, description)]
    if source is not None and label_id is None and not description:
        check_readable_file(source, "--file")
        return read_label_file(source, form_of(source))
    values = {"ID": label_id, "NAME": name, "--description": description, "--file": source}
    given = ", ".join(key for key, value in values.items() if value) or "nothing"
    raise ConfigError(f"add-label: got {given}; expected ID and NAME, or --file alone")


def _registry(folder: Path) -> Registry:
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
    """Return a registry whose folder is there.

    Raises:
        BundleNotFoundError: It is not, or as `_registry`.
    """
    from longtail.models.errors import BundleNotFoundError

    if not folder.is_dir():
        raise BundleNotFoundError(
            f"registry {str(folder)!r}: there is no such folder; check the path, or train a "
            "version with 'longtail train'"
        )
    return _registry(folder)


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
