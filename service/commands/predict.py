"""The command `longtail predict`: a file of documents in, a file of answers out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer

from longtail.models.errors import ConfigError, DataError, count_of
from longtail.models.files.failures import INTERRUPTED
from longtail.service.commands.registry import (
    DEFAULT_REGISTRY,
    DeviceOption,
    IdColumnOption,
    RegistryOption,
    TextColumnsOption,
    ThreadsOption,
)

if TYPE_CHECKING:  # imported inside the command, so that --help stays fast
    from pydantic.fields import FieldInfo

    from longtail.models.bundle.bundle import Bundle
    from longtail.models.corpus.columns import CorpusOptions
    from longtail.models.corpus.forms import DocumentSource
    from longtail.service.engine.queries import LabelSets
    from longtail.service.wire.lines import Tally


def predict(ctx: typer.Context) -> None:
    """Label every text of a file, without a service.

    A line that can't be answered gets an error as its answer. The exit status is 0 if all lines
    were answered, and 1 if one was not. The output is written when all are there.
    """
    status = predict_command()(args=ctx.args, prog_name=ctx.command_path, standalone_mode=False)
    if status == INTERRUPTED:  # which the inner command returns instead of raising
        raise KeyboardInterrupt
    raise typer.Exit(status or 0)


def predict_command() -> typer.Typer:
    """Return the command with an option for each option of a request."""
    from longtail.models.fitted.registry import request_options

    def run(**given: Any) -> None:
        _predict(**given)

    signature = inspect.signature(_predict, eval_str=True)
    parameters = [x for x in signature.parameters.values() if x.kind is not x.VAR_KEYWORD]
    fields = request_options().model_fields
    parameters += [_option(name, field) for name, field in fields.items() if name != "version"]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(help=inspect.getdoc(predict))(run)
    return app


def _option(name: str, field: FieldInfo) -> inspect.Parameter:
    """Return the option of the command for an option of a request."""
    union = get_args(field.annotation) if NoneType in get_args(field.annotation) else ()
    plain = [
        x.__origin__ if get_origin(x) is Annotated else x for x in union or (field.annotation,)
    ]
    kinds = {get_origin(x) or x for x in plain}
    if list in kinds:
        kind: Any = list[str]
    else:
        kind = next((x for x in (bool, int, float) if kinds <= {x, NoneType}), str)
    names = ("--k", "-k") if name == "k" else (f"--{name.replace('_', '-')}",)
    text = (field.description or "").split(". ")[0].replace("`", "'").removesuffix(".")
    bounds = {"min": "ge", "max": "le"} if kind in (int, float) else {}
    limits: dict[str, Any] = {
        name: getattr(x, attribute)
        for name, attribute in bounds.items()
        for x in field.metadata
        if hasattr(x, attribute)
    }
    option = typer.Option(None, *names, help=f"{text}.", show_default=False, **limits)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind | None
    )


def _predict(
    source: Annotated[
        str,
        typer.Option(
            "--input",
            help="File or folder in a form that 'longtail train' reads, with or without labels; or "
            ".txt, a text a line.",
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--output",
            help="File for the answers: .jsonl; or .csv or .tsv, the rows of the input with "
            "columns for the labels; compressed with .gz. Of a .parquet file also .parquet.",
        ),
    ],
    registry: RegistryOption = DEFAULT_REGISTRY,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace answers that are there already.")
    ] = False,
    version: Annotated[str, typer.Option(help="A version's number, or 'current'.")] = "current",
    text_columns: TextColumnsOption = None,
    id_column: IdColumnOption = None,
    label_sets: Annotated[
        Path | None,
        typer.Option(envvar="LONGTAIL_LABEL_SETS", help="Folder of the stored sets."),
    ] = None,
    device: DeviceOption = None,
    num_threads: ThreadsOption = None,
    index: Annotated[
        str, typer.Option(help="What searches label vectors: torch, faiss, or auto for the faster.")
    ] = "torch",
    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    **options: Any,
) -> None:
    from longtail.models.bundle.registry import Registry
    from longtail.models.bundle.trained_on import read_trained_on
    from longtail.models.corpus.columns import CorpusOptions
    from longtail.models.files.outputs import check_readable_file
    from longtail.models.options import default_k
    from longtail.service.engine.queries import LabelSets
    from longtail.service.offline.predict import (
        check_options,
        checked_options,
        checked_precision,
    )

    given = {x: value for x, value in options.items() if value is not False and value != []}
    defaults, checked = checked_options(given), checked_precision(precision)
    if not Path(source).is_dir():
        check_readable_file(Path(source), "--input")
    store, sets = Registry(registry), LabelSets(label_sets)
    number = store.resolve(version)
    bundle = store.open(number)
    defaults.setdefault("k", default_k(defaults.get("threshold"), bundle.manifest.label_count))
    check_options(bundle, defaults, sets)
    trained = read_trained_on(bundle).text_columns
    text = [name.strip() for name in (text_columns or "").split(",") if name.strip()]
    columns = (CorpusOptions(text_columns=tuple(text), id_column=id_column), trained)
    computing = {
        "device": device, "num_threads": num_threads, "precision": checked, "index": index,
    }  # fmt: skip
    parquet = Path(target).suffix.lower() == ".parquet"
    asked = _Asked(
        Path(source), Path(target), registry, number, bundle, defaults, sets, *columns, computing,
        overwrite,
    )  # fmt: skip
    _report(_answer_parquet(asked) if parquet else _answer_lines(asked), asked)


_SETS = ("include_set", "exclude_set")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the command line says, checked."""

    source: Path
    target: Path
    registry: Path
    version: int
    bundle: Bundle
    defaults: dict[str, Any]
    sets: LabelSets
    columns: CorpusOptions
    trained_columns: tuple[str, ...]
    computing: dict[str, Any]
    overwrite: bool

    def documents(self) -> DocumentSource:
        """Return the documents, whose text is that of the training's columns."""
        from longtail.models.corpus.files import find_unlabelled
        from longtail.service.offline.documents import read_as_trained

        return read_as_trained(find_unlabelled(self.source, self.columns), self.trained_columns)


def _answer_lines(asked: _Asked) -> Tally:
    from longtail.models.interface.model import LoadedModel
    from longtail.service.offline.documents import check_source
    from longtail.service.offline.predict import Task, check_answerable, check_task, predict_file

    documents = asked.documents()
    remarks, columns = check_source(documents), documents.options
    if columns != asked.columns:
        text = ", ".join(columns.text_columns)
        remarks.append(f"The text is that of {text}, as in the training.")
    task = Task(documents, asked.target, asked.version, asked.defaults, asked.sets)
    check_task(task, asked.registry, overwrite=asked.overwrite)
    for remark in remarks:
        typer.echo(remark, err=True)
    model = LoadedModel(asked.bundle, **asked.computing)
    check_answerable(model, task)
    with _progress_bar(documents.paths) as progress:
        return predict_file(task, model, progress)


def _answer_parquet(asked: _Asked) -> Tally:
    from longtail.models.corpus.documents import columns_of
    from longtail.models.files.outputs import check_output_file
    from longtail.models.interface.arrow import ArrowPredictor
    from longtail.service.offline.parquet import predict_parquet

    if lacking := {"explain", "schemes"} & asked.defaults.keys():
        raise ConfigError(f"--{min(lacking)}: Parquet has no column for it; write .jsonl")
    documents = asked.documents()
    if documents.paths[0].suffix.lower() != ".parquet":
        raise ConfigError(
            f"--output {str(asked.target)!r}: only the answers to a Parquet file are written as "
            f"Parquet, and --input {str(asked.source)!r} is not one; write .jsonl or .csv"
        )
    check_output_file(
        asked.target, inputs=documents.paths, registry=asked.registry, overwrite=asked.overwrite
    )
    text, key = columns_of(documents).text, asked.columns.id_column
    if not asked.columns.text_columns:
        typer.echo(f"The text is that of {', '.join(text)}.", err=True)
    options = dict(asked.defaults)
    sets: dict[str, Any] = {
        name: asked.sets.get(options.pop(name)) for name in _SETS if name in options
    }
    if sets:
        from longtail.models.labels.filters import LabelFilter

        options["label_filter"] = LabelFilter(**sets)
    predictor = ArrowPredictor(
        asked.registry, text, key, version=asked.version, **asked.computing, **options
    )
    return predict_parquet(asked.source, asked.target, predictor)


def _report(tally: Tally, asked: _Asked) -> None:
    said = f"; {tally.num_guarded} cells that begin as formulas got an apostrophe before them"
    typer.echo(
        f"{count_of(tally.num_lines, 'document')}: {tally.num_results} answered, "
        f"{tally.num_errors} with errors, {count_of(tally.num_truncated, 'text')} cut. "
        f"Written: {asked.target}{said if tally.num_guarded else ''}"
    )
    if tally.num_errors:
        whole = "" if tally.num_results else "all "
        raise DataError(
            f"{whole}{tally.num_errors} of {count_of(tally.num_lines, 'document')} of "
            f"{str(asked.source)!r} could not be answered; the first: {tally.first_error}"
        )


@contextmanager
def _progress_bar(paths: Sequence[Path]) -> Iterator[Callable[[int], object]]:
    from tqdm import tqdm

    size = sum(path.stat().st_size for path in paths) if paths[0].is_file() else None
    with tqdm(total=size, unit="B", unit_scale=True, desc="predict") as bar:
        yield bar.update
