"""`longtail feedback`: what people said of labels, from files and to files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from longtail.service.commands.registry import (
    DEFAULT_REGISTRY,
    JsonOption,
    RegistryOption,
    print_json,
)

feedback_app = typer.Typer(
    no_args_is_help=True,
    help="Import, export and delete what people said of labels.",
)

PlaceOption = Annotated[
    str,
    typer.Option(
        "--feedback",
        envvar="LONGTAIL_FEEDBACK",
        help="Folder that keeps the feedback.",
    ),
]


@feedback_app.command("import")
def import_file(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="JSON lines, an entry each as POST /v1/feedback takes it, or an export.",
        ),
    ],
    feedback: PlaceOption,
    registry: RegistryOption = DEFAULT_REGISTRY,
    version: Annotated[
        str, typer.Option(help="Of the model, for entries that name none: a number, or 'current'.")
    ] = "current",
    keeps_texts: Annotated[
        bool,
        typer.Option(
            "--texts/--no-texts",
            envvar="LONGTAIL_FEEDBACK_TEXTS",
            help="Keep the texts; otherwise their SHA-256.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Store the entries of a file; an entry that is there already is not stored twice.

    A line that can't be used stops the import before anything is stored.
    """
    from longtail.models.errors import DataError
    from longtail.models.files.outputs import check_not_in_registry, check_readable_file
    from longtail.service.feedback.store import FeedbackStore
    from longtail.service.offline.feedback import Versions, import_feedback

    check_readable_file(source, "FILE")
    with FeedbackStore(feedback) as store:
        check_not_in_registry(store.file.parent, registry, "--feedback")
        done = import_feedback(source, store, Versions(registry, version), keeps_text=keeps_texts)
    if as_json:
        print_json(asdict(done))
    else:
        print(f"{done.stored} stored, {done.known} known, {done.deleted} deleted.")
    if done.refused:
        raise DataError(f"{source}: {done.refused} not stored; the first: {done.reasons[0]}")


@feedback_app.command("export")
def export_file(
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="File for the entries, JSON lines.")
    ],
    feedback: PlaceOption,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that is there already.")
    ] = False,
) -> None:
    """Write all entries to a file, in the order in which they came; deleted ones as their ids."""
    from longtail.models.errors import count_of
    from longtail.models.files.outputs import check_output_file
    from longtail.service.feedback.store import FeedbackStore
    from longtail.service.offline.feedback import export_feedback

    with FeedbackStore(feedback, must_exist=True) as store:
        check_output_file(target, inputs=[store.file], overwrite=overwrite, option="OUT")
        number = export_feedback(store, target)
    print(f"Written: {target}, {count_of(number, 'entry', 'entries')}.")


@feedback_app.command("delete")
def delete_entry(
    entry_id: Annotated[str, typer.Argument(metavar="ID", help="Of the entry.")],
    feedback: PlaceOption,
) -> None:
    """Erase all but the id of an entry; exports and backups made before keep it."""
    from longtail.models.errors import DataError
    from longtail.service.feedback.store import FeedbackStore

    with FeedbackStore(feedback, must_exist=True) as store:
        if not store.delete(entry_id):
            raise DataError(
                f"there is no feedback with the id {entry_id[:100]!r}; 'longtail feedback export' "
                "lists all ids"
            )
    print(f"Deleted: {entry_id}")
