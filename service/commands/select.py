"""The command `longtail select`: which unlabelled documents to label next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.service.commands.options import (
    DEFAULT_REGISTRY,
    DeviceOption,
    IdColumnOption,
    RegistryOption,
    TextColumnsOption,
    ThreadsOption,
)

if TYPE_CHECKING:  # imported inside the command, so that --help stays fast
    from longtail.service.offline.select import Documents, Wanted


def select(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DOCUMENTS",
            help="JSON lines with a text (or title and content) each; .csv; .txt, a text a line; "
            "each also with .gz.",
        ),
    ],
    registry: RegistryOption = DEFAULT_REGISTRY,
    version: Annotated[str, typer.Option(help="A version's number, or 'current'.")] = "current",
    number: Annotated[
        int, typer.Option("--number", "-n", min=1, help="Documents to choose.")
    ] = 500,
    output: Annotated[
        Path, typer.Option(help="File for the documents, JSON lines, the first choice first.")
    ] = Path("selected.jsonl"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that is there already.")
    ] = False,
    rare_share: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Share of them that is chosen for labels with fewer than 10 training documents.",
        ),
    ] = 0.0,
    pool: Annotated[
        int,
        typer.Option(
            min=1, help="Texts that are compared with one another; of more, so many are drawn."
        ),
    ] = 50_000,
    scorer: Annotated[
        str | None,
        typer.Option(
            help="By whose probabilities to choose; one of the model's scorers.",
            show_default="the model's default",
        ),
    ] = None,
    text_columns: TextColumnsOption = None,
    id_column: IdColumnOption = None,
    device: DeviceOption = None,
    num_threads: ThreadsOption = None,
) -> None:
    """Choose the unlabelled documents that would teach a model the most, and say why."""
    from longtail.models.bundle.registry import Registry
    from longtail.models.files.outputs import check_output_file
    from longtail.models.predict.predictor import Predictor
    from longtail.models.selection.pool import scorer_with_probabilities
    from longtail.service.offline.documents import DocumentColumns, check_source
    from longtail.service.offline.select import (
        STAGES,
        Wanted,
        read_documents,
        select_documents,
        write_selection,
    )

    columns = DocumentColumns.named(text_columns, id_column)
    remarks = check_source(source, columns, "DOCUMENTS")
    check_output_file(output, inputs=[source], registry=registry, overwrite=overwrite)
    bundle = Registry(registry).open(version)
    for remark in remarks:
        typer.echo(remark, err=True)
    predictor = Predictor.of_bundle(
        bundle, device=device, num_threads=num_threads, precision="auto"
    )
    wanted = Wanted(number, rare_share, scorer_with_probabilities(predictor, scorer))
    with _progress_bar(source.stat().st_size, "read", "B") as read:
        documents = read_documents(source, columns, pool, read)
    with _progress_bar(STAGES * len(documents.kept), "select", "doc") as looked_at:
        selected = select_documents(
            predictor, documents.kept, wanted, num_threads=num_threads, progress=looked_at
        )
    write_selection(selected, output)
    _report(documents, len(selected), wanted, output)


def _report(documents: Documents, num_selected: int, wanted: Wanted, output: Path) -> None:
    """Print what became of the documents."""
    typer.echo(f"{num_selected} of {documents.num_read} documents chosen. Written: {output}")
    different = len(documents.kept)
    if documents.num_left_out:
        typer.echo(
            f"{documents.num_left_out} documents were not looked at: {different} texts were drawn "
            "of all; --pool takes more",
            err=True,
        )
    if num_selected < min(wanted.number, different):
        typer.echo(
            f"The other {different - num_selected} texts would add nothing: the model knows none "
            "of their words, is in doubt of none of their labels, or knows their like already",
            err=True,
        )
    if documents.num_errors:
        typer.echo(
            f"{documents.num_errors} lines could not be used; the first: {documents.first_error}",
            err=True,
        )


@contextmanager
def _progress_bar(total: int, what: str, unit: str) -> Iterator[Callable[[int], object]]:
    from tqdm import tqdm

    with tqdm(total=total, unit=unit, unit_scale=True, desc=what, mininterval=1.0) as bar:
        yield bar.update
