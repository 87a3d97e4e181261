"""The command `longtail predict`: a file of documents in, a file of answers out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.models.options import DEFAULT_K, MAX_TAIL_DIAL
from longtail.service.commands.options import (
    DEFAULT_REGISTRY,
    DeviceOption,
    IdColumnOption,
    RegistryOption,
    TextColumnsOption,
    ThreadsOption,
)

if TYPE_CHECKING:  # imported inside the command, so that --help stays fast
    from longtail.service.offline.unfinished import Task
    from longtail.service.wire.tally import Tally


def predict(
    source: Annotated[
        Path,
        typer.Option(
            "--input",
            help="JSON lines with a text (or title and content) each; .csv; .txt, a text a line; "
            "each also with .gz.",
        ),
    ],
    target: Annotated[
        Path,
        typer.Option(
            "--output",
            help="File for the answers: .jsonl; or .csv or .tsv, the rows of the input with "
            "columns for the labels; packed with .gz.",
        ),
    ],
    registry: RegistryOption = DEFAULT_REGISTRY,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace answers that are there already.")
    ] = False,
    version: Annotated[str, typer.Option(help="A version's number, or 'current'.")] = "current",
    k: Annotated[
        int | None,
        typer.Option(
            "--k", "-k", min=1, help="Labels for each text.", show_default="5, or all of fewer"
        ),
    ] = None,
    scorer: Annotated[
        str | None,
        typer.Option(
            help="How to score labels; one of the model's scorers.",
            show_default="the model's default",
        ),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(min=0, max=1, help="Least probability of a label.")
    ] = None,
    correction: Annotated[
        str | None,
        typer.Option(
            help="Correction of the scores: none, prior or tree.",
            show_default="what the scorer was trained with",
        ),
    ] = None,
    tail_dial: Annotated[
        float,
        typer.Option(
            min=0,
            max=MAX_TAIL_DIAL,
            help="Strength of logit adjustment at query time: more of it favours rare labels.",
        ),
    ] = 0.0,
    aim: Annotated[
        str | None,
        typer.Option(
            help="What the answers are to be good at: precision, rare_labels, coverage or "
            "propensity. Not with --tail-dial.",
            show_default="precision",
        ),
    ] = None,
    accept: Annotated[
        str | None,
        typer.Option(
            help="Mark labels as accepted by a promise of the model: a precision such as 0.95, a "
            "name such as 'recall 0.9', or true for its default promise."
        ),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(help="Id of a label to return, and no others; repeat it for more."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Id of a label not to return; repeat it for more.")
    ] = None,
    include_set: Annotated[
        str | None, typer.Option(help="Stored set of labels to return as well.")
    ] = None,
    exclude_set: Annotated[
        str | None, typer.Option(help="Stored set of labels not to return either.")
    ] = None,
    under: Annotated[
        list[str] | None,
        typer.Option(
            help="Id of a label: only it and the labels below it are returned; repeat it for more."
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(help="Of the labels' names, where the vocabulary has it."),
    ] = None,
    text_columns: TextColumnsOption = None,
    id_column: IdColumnOption = None,
    label_sets: Annotated[
        Path | None,
        typer.Option(envvar="LONGTAIL_LABEL_SETS", help="Folder of the stored sets."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Explain why each label was found.")
    ] = False,
    device: DeviceOption = None,
    num_threads: ThreadsOption = None,
    precision: Annotated[str, typer.Option(help="auto, float32, bfloat16 or onnx-int8.")] = "auto",
    engine: Annotated[
        str, typer.Option(help="local, or ray: workers on a cluster (RAY_ADDRESS), or here.")
    ] = "local",
    workers: Annotated[int, typer.Option(min=1, help="With ray: processes with a model each.")] = 1,
) -> None:
    """Label every text of a file, without a service; the same command resumes unfinished work.

    A line that can't be answered gets an error as its answer. The exit status is 0 if all lines
    were answered, and 1 if one was not.
    """
    from longtail.models.bundle.registry import Registry
    from longtail.models.bundle.trained_on import read_trained_on
    from longtail.models.files.outputs import check_readable_file
    from longtail.service.engine.label_sets import LabelSets
    from longtail.service.offline.documents import (
        DocumentColumns,
        check_source,
        columns_as_trained,
    )
    from longtail.service.offline.predict import (
        check_options,
        check_task,
        checked_engine,
        checked_options,
        checked_precision,
    )
    from longtail.service.offline.unfinished import Task

    options = {
        "k": k,
        "scorer": scorer,
        "threshold": threshold,
        "correction": correction,
        "tail_dial": tail_dial,
        "aim": aim,
        "accept": accept,
        "include": include or None,
        "exclude": exclude or None,
        "include_set": include_set,
        "exclude_set": exclude_set,
        "under": under or None,
        "language": language,
        "explain": explain or None,
    }
    defaults, checked, by = (
        checked_options(options),
        checked_precision(precision),
        checked_engine(engine),
    )
    check_readable_file(source, "--input")
    store, sets = Registry(registry), LabelSets(label_sets)
    number = store.resolve(version)
    bundle = store.open(number)
    record = read_trained_on(bundle)
    columns = columns_as_trained(
        source,
        DocumentColumns.named(text_columns, id_column),
        () if record is None else record.text_columns,
    )
    remarks = check_source(source, columns)
    if columns.text and text_columns is None:
        remarks.append(f"The text is that of {', '.join(columns.text)}, as in the training.")
    defaults.setdefault("k", min(DEFAULT_K, bundle.manifest.label_count))
    task = Task(source, target, number, bundle.manifest.digest, defaults, sets, columns)
    check_task(task, registry, overwrite=overwrite)
    check_options(bundle, defaults, sets)
    for remark in remarks:
        typer.echo(remark, err=True)
    if by == "ray":
        from longtail.service.offline.ray import Workers, predict_on_ray

        on_cluster = Workers(
            registry.resolve(), label_sets, workers, num_threads or 1, device or "cpu", checked
        )
        with _progress_bar(source) as progress:
            tally = predict_on_ray(task, on_cluster, progress)
    else:
        from longtail.models.predict.predictor import Predictor
        from longtail.service.offline.predict import check_answerable, predict_file

        predictor = Predictor.of_bundle(
            bundle, device=device, num_threads=num_threads, precision=checked
        )
        check_answerable(predictor, task)
        with _progress_bar(source) as progress:
            tally = predict_file(task, predictor, progress)
    _report(tally, task)


def _report(tally: Tally, task: Task) -> None:
    """Print what became of the lines."""
    from longtail.models.errors import DataError

    typer.echo(
        f"{tally.num_lines} documents: {tally.num_results} answered, {tally.num_errors} with "
        f"errors, {tally.num_truncated} texts cut. Written: {task.target}"
    )
    if tally.num_errors:
        whole = "" if tally.num_results else "all "
        raise DataError(
            f"{whole}{tally.num_errors} of {tally.num_lines} documents of {str(task.source)!r} "
            f"could not be answered; the first: {tally.first_error}"
        )


@contextmanager
def _progress_bar(source: Path) -> Iterator[Callable[[int], object]]:
    from tqdm import tqdm

    size = source.stat().st_size if source.is_file() else None
    with tqdm(total=size, unit="B", unit_scale=True, desc="predict") as bar:
        yield bar.update
