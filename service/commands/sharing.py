"""`longtail push` and `longtail pull`: models to and from other places."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longtail.service.commands.registry import (
    DEFAULT_REGISTRY,
    JsonOption,
    RegistryOption,
    print_json,
)

_PLACES = "hf://owner/name[@revision], a .zip file, a folder, or any URI of fsspec (s3://...)."


def push(
    place: Annotated[str, typer.Argument(metavar="PLACE", help=f"Where to: {_PLACES}")],
    version: Annotated[str, typer.Option(help="A version's number, or 'current'.")] = "current",
    registry: RegistryOption = DEFAULT_REGISTRY,
    name: Annotated[str, typer.Option(help="Of the model, for its card.")] = "A Longtail model",
    data: Annotated[
        str, typer.Option("--trained-on", help="What it was trained on, for its card.")
    ] = "",
    licence: Annotated[
        str, typer.Option("--license", help="Of the model, for its card, such as cc-by-4.0.")
    ] = "",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace another model that lies there.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Send a model elsewhere, with a model card, README.md."""
    from longtail.models.bundle.registry import Registry
    from longtail.models.fitted.registry import card_lines
    from longtail.models.kinds.registry import keeping_documents
    from longtail.models.sharing.card import model_card
    from longtail.models.sharing.transfer import push as send

    bundle = Registry(registry).open(version)
    source = place if "://" in place else Path(place).name
    card = model_card(
        bundle, keeping_documents(), card_lines(bundle),
        name=name, data=data, licence=licence, source=source,
    )  # fmt: skip
    is_sent, digest = send(bundle, place, card, replace=overwrite), bundle.manifest.digest
    if as_json:
        print_json({"place": place, "digest": digest, "sent": is_sent})
        return
    told = f"Sent to {place}" if is_sent else f"{place} holds this model already"
    print(f"{told}.\nDigest {digest}")


def pull(
    place: Annotated[str, typer.Argument(metavar="PLACE", help=f"Where it lies: {_PLACES}")],
    registry: RegistryOption = DEFAULT_REGISTRY,
    digest: Annotated[
        str, typer.Option(help="How its digest must begin: at least 8 hexadecimal digits.")
    ] = "",
    move: Annotated[
        bool,
        typer.Option("--activate/--no-activate", help="Let 'current' name the new version."),
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Fetch a model into the registry, verified and tried."""
    from longtail.models.bundle.bundle import read_manifest
    from longtail.models.bundle.registry import Registry
    from longtail.models.predict.trial import check_answers
    from longtail.models.sharing.transfer import pull as fetch

    store = Registry(registry)
    store.check_writable()
    made = fetch(place, store, activate=move, digest=digest, check=check_answers)
    found = read_manifest(store.folder_of(made))
    if as_json:
        print_json({"version": made, "digest": found.digest, "current": store.current()})
        return
    print(
        f"Version {made}: {found.label_count:,} labels, scorers {', '.join(found.scorers)}.\n"
        f"Digest {found.digest}\nCurrent is version {store.current()}; 'longtail serve' serves it."
    )
