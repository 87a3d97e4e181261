"""The command `longtail predict`: a file of documents in, a file of answers out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.models.errors import ConfigError, DataError
from longtail.models.options import MAX_TAIL_DIAL, default_k
from longtail.service.commands.registry import (
    DEFAULT_REGISTRY,
    DeviceOption,
    IdColumnOption,
    RegistryOption,
    TextColumnsOption,
    ThreadsOption,
)

if TYPE_CHECKING:  # imported inside the command, so that --help stays fast
    from longtail.models.bundle.bundle import Bundle
    from longtail.models.corpus.columns import CorpusOptions
    from longtail.models.corpus.raw import DocumentSource
    from longtail.service.engine.queries import LabelSets
    from longtail.service.wire.lines import Tally


def predict(
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
        str | None,
        typer.Option(
            help="Least probability of a label; or auto: as many labels as the text needs."
        ),
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
            help="Measure to rank for: precision, or propensity (PSP@k). Not with --tail-dial.",
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
    schemes: Annotated[
        str | None,
        typer.Option(help='Best labels by scheme: {"topic": {"k": 5}, "genre": {"k": 2}}.'),
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
    index: Annotated[
        str, typer.Option(help="What searches label vectors: torch, faiss, or auto for the faster.")
    ] = "torch",
    precision: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
) -> None:
    """Label every text of a file, without a service.

    A line that can't be answered gets an error as its answer. The exit status is 0 if all lines
    were answered, and 1 if one was not. The output is written when all are there.
    """
    from longtail.models.bundle.registry import Registry
    from longtail.models.bundle.trained_on import read_trained_on
    from longtail.models.corpus.columns import CorpusOptions
    from longtail.models.files.outputs import check_readable_file
    from longtail.service.engine.queries import LabelSets
    from longtail.service.offline.predict import (
        check_options,
        checked_options,
        checked_precision,
    )

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
        "schemes": schemes,
        "language": language,
        "explain": explain or None,
    }
    defaults, checked = checked_options(options), checked_precision(precision)
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
    from longtail.models.predict.predictor import Predictor
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
    predictor = Predictor.of_bundle(asked.bundle, **asked.computing)
    check_answerable(predictor, task)
    with _progress_bar(documents.paths) as progress:
        return predict_file(task, predictor, progress)


def _answer_parquet(asked: _Asked) -> Tally:
    from longtail.models.corpus.documents import columns_of
    from longtail.models.corpus.forms import PARQUET
    from longtail.models.files.outputs import check_output_file
    from longtail.models.interface.arrow import ArrowPredictor
    from longtail.service.offline.parquet import predict_parquet
    from longtail.service.offline.predict import keywords_of

    if lacking := {"explain", "schemes"} & asked.defaults.keys():
        raise ConfigError(f"--{min(lacking)}: Parquet has no column for it; write .jsonl")
    documents = asked.documents()
    if documents.form is not PARQUET:
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
    options = keywords_of(asked.defaults, asked.sets)
    options["language"] = asked.defaults.get("language")
    predictor = ArrowPredictor(
        asked.registry, text, key, version=asked.version, **asked.computing, **options
    )
    return predict_parquet(asked.source, asked.target, predictor)


def _report(tally: Tally, asked: _Asked) -> None:
    said = f"; {tally.num_guarded} cells that begin as formulas got an apostrophe before them"
    typer.echo(
        f"{tally.num_lines} documents: {tally.num_results} answered, {tally.num_errors} with "
        f"errors, {tally.num_truncated} texts cut. Written: {asked.target}"
        f"{said if tally.num_guarded else ''}"
    )
    if tally.num_errors:
        whole = "" if tally.num_results else "all "
        raise DataError(
            f"{whole}{tally.num_errors} of {tally.num_lines} documents of {str(asked.source)!r} "
            f"could not be answered; the first: {tally.first_error}"
        )


@contextmanager
def _progress_bar(paths: Sequence[Path]) -> Iterator[Callable[[int], object]]:
    from tqdm import tqdm

    size = sum(path.stat().st_size for path in paths) if paths[0].is_file() else None
    with tqdm(total=size, unit="B", unit_scale=True, desc="predict") as bar:
        yield bar.update
