"""`longtail registry add-label`: new labels for a model, without training."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.commands.changed_version import (
    ActivateOption,
    ForceOption,
    MeasureOption,
    MeasureSplitOption,
    check_can_measure,
    publish_changed,
)
from longtail.service.commands.registry import (
    DEFAULT_REGISTRY,
    JsonOption,
    RegistryOption,
    print_json,
)

if TYPE_CHECKING:  # imported inside the command, so that --help stays fast
    from longtail.models.labels.catalogue import Label


def add_label(
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
    activate: ActivateOption = False,
    data: MeasureOption = None,
    split: MeasureSplitOption = "dev",
    force: ForceOption = False,
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
    from longtail.service.commands.registry import registry_at

    check_can_measure(data)
    labels = _new_labels(label_id, name, description, source)
    store = registry_at(registry)
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
    made = publish_changed(
        store, bundle, write, data, split, activate=activate, force=force, action="add-label"
    )
    manifest = read_manifest(store.folder_of(made))
    if as_json:
        found = {"version": made, "from_version": number, "num_added": len(labels)}
        found |= {"label_count": manifest.label_count}
        print_json(found | {"digest": manifest.digest, "current": store.current()})
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
