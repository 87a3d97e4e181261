"""The command `longtail predict`: a file of documents in, a file of answers out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.extensions import ComputeEngine, engine_named
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
    from longtail.service.engine.queries import LabelSets
    from longtail.service.wire.lines import Tally


def predict(
    source: Annotated[
        str,
        typer.Option(
            "--input",
            help="File or folder in a form that 'longtail train' reads, with or without labels; or "
            ".txt, a text a line. Of Parquet, path or URI, such as 's3://docs/*.parquet'.",
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--output",
            help="File for the answers: .jsonl; or .csv or .tsv, the rows of the input with "
            "columns for the labels; packed with .gz. Of Parquet: folder or URI; of one, .parquet.",
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
    precision: Annotated[str, typer.Option(help="auto, float32, bfloat16 or onnx-int8.")] = "auto",
    engine: Annotated[
        str,
        typer.Option(
            help="local; or of Parquet, ray: workers on a cluster (RAY_ADDRESS), or here."
        ),
    ] = "local",
    workers: Annotated[int, typer.Option(min=1, help="With ray: processes with a model each.")] = 1,
) -> None:
    """Label every text of a file, without a service; the same command resumes unfinished work.

    A line that can't be answered gets an error as its answer. The exit status is 0 if all lines
    were answered, and 1 if one was not. Parquet files are answered one at a time.
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
    by = engine_named(engine)
    is_parquet = source.lower().endswith(".parquet")
    if not is_parquet and not Path(source).is_dir():
        check_readable_file(Path(source), "--input")
    store, sets = Registry(registry), LabelSets(label_sets)
    number = store.resolve(version)
    bundle = store.open(number)
    defaults.setdefault("k", default_k(defaults.get("threshold"), bundle.manifest.label_count))
    check_options(bundle, defaults, sets)
    record = read_trained_on(bundle)
    trained = () if record is None else record.text_columns
    text = [name.strip() for name in (text_columns or "").split(",") if name.strip()]
    columns = (CorpusOptions(text_columns=tuple(text), id_column=id_column), trained)
    computing = {"device": device, "num_threads": num_threads, "precision": checked}
    model = (registry, number, bundle)
    asked = _Asked(
        source, target, *model, defaults, sets, *columns, computing, overwrite, by, workers
    )
    _report(_answer_parts(asked) if is_parquet else _answer_lines(asked), asked)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the command line says, checked."""

    source: str
    target: str
    registry: Path
    version: int
    bundle: Bundle
    defaults: dict[str, Any]
    sets: LabelSets
    columns: CorpusOptions
    trained_columns: tuple[str, ...]
    computing: dict[str, Any]
    overwrite: bool
    engine: ComputeEngine | None
    num_workers: int


def _answer_lines(asked: _Asked) -> Tally:
    from longtail.models.corpus.files import find_unlabelled
    from longtail.models.predict.predictor import Predictor
    from longtail.service.offline.documents import check_source, read_as_trained
    from longtail.service.offline.predict import check_answerable, check_task, predict_file
    from longtail.service.offline.tables import Task

    if asked.engine is not None:
        raise ConfigError(
            f"--engine {asked.engine.name}: --input {asked.source!r} is not Parquet, whose parts a "
            "cluster can answer; convert it, or leave the engine out"
        )
    source = Path(asked.source)
    documents = read_as_trained(find_unlabelled(source, asked.columns), asked.trained_columns)
    remarks, columns = check_source(documents), documents.options
    if columns != asked.columns:
        text = ", ".join(columns.text_columns)
        remarks.append(f"The text is that of {text}, as in the training.")
    model = (asked.version, asked.bundle.manifest.digest)
    task = Task(source, Path(asked.target), *model, asked.defaults, asked.sets, columns)
    check_task(task, asked.registry, overwrite=asked.overwrite)
    for remark in remarks:
        typer.echo(remark, err=True)
    predictor = Predictor.of_bundle(asked.bundle, **asked.computing)
    check_answerable(predictor, task)
    with _progress_bar(documents.paths) as progress:
        return predict_file(task, predictor, progress)


def _answer_parts(asked: _Asked) -> Tally:
    """Answer the rows of Parquet files, here or on some workers of an engine."""
    from longtail.models.files.outputs import check_output_folder
    from longtail.models.interface.arrow import ArrowPredictor
    from longtail.service.offline.parts import Parts, check_alone, columns_in
    from longtail.service.offline.predict import keywords_of
    from longtail.service.offline.tables import form_of

    computing, defaults = asked.computing, asked.defaults
    if lacking := {"explain", "schemes"} & defaults.keys():
        raise ConfigError(f"--{min(lacking)}: Parquet has no column for it; ask with JSON lines")
    form, target = form_of(Path(asked.target)), asked.target
    is_file = form == ".parquet" and not {*"*?["} & {*asked.source}
    if not is_file and form in {".parquet", ".jsonl", ".ndjson", ".csv", ".tsv"}:
        raise ConfigError(
            f"--output {target!r}: expected a folder, as --input is Parquet, or for one file "
            "without wildcards a name that ends in '.parquet'"
        )
    if is_file:
        check_alone(asked.source, target, asked.registry, overwrite=asked.overwrite)
        target += ".parts"  # what a run that was cut off has left
    if "://" not in target:
        check_output_folder(Path(target), (), registry=asked.registry)
    answer = None
    if asked.engine is not None:
        device, num_threads = computing["device"] or "cpu", computing["num_threads"] or 1
        computing = {**computing, "device": device, "num_threads": num_threads}
        answer = asked.engine.answers_parts(asked.num_workers, num_threads, device)
    key = asked.columns.id_column
    text = columns_in(asked.source, asked.columns, asked.trained_columns)
    if not asked.columns.text_columns:
        typer.echo(f"The text is that of {', '.join(text)}.", err=True)
    options = {**keywords_of(defaults, asked.sets), "language": defaults.get("language")}
    registry, version = asked.registry.resolve(), asked.version
    predictor = ArrowPredictor(registry, text, key, version=version, **computing, **options)
    same = {
        "digest": predictor.digest,
        "defaults": {**defaults, "text_columns": [*text], "id_column": key},
        "label_sets": asked.sets.digest(),
    }
    parts = Parts(asked.source, target, predictor, same)
    tally = parts.predict(answer, overwrite=asked.overwrite)
    if is_file:
        parts.move_to(asked.target)
    return tally


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
            f"{whole}{tally.num_errors} of {tally.num_lines} documents of {asked.source!r} "
            f"could not be answered; the first: {tally.first_error}"
        )


@contextmanager
def _progress_bar(paths: Sequence[Path]) -> Iterator[Callable[[int], object]]:
    from tqdm import tqdm

    size = sum(path.stat().st_size for path in paths) if paths[0].is_file() else None
    with tqdm(total=size, unit="B", unit_scale=True, desc="predict") as bar:
        yield bar.update
