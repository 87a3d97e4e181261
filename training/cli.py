"""The offline commands: `longtail train`, `evaluate`, `report`, `compare`, `describe`, ..."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from models.errors import ConfigError
from training.experiments.cli import EngineOption, WorkersOption, make_experiment_app

if TYPE_CHECKING:  # imported inside the commands, so that --help stays fast
    from training.reports.labels import LabelReport

DEFAULT_REGISTRY = Path("registry")

RegistryOption = Annotated[
    Path, typer.Option("--registry", envvar="LONGTAIL_REGISTRY", help="Folder of the registry.")
]
DataArgument = Annotated[
    Path,
    typer.Argument(help="Folder of the corpus: JSON lines, CSV, or a form of the XMC repository."),
]
SkipBadOption = Annotated[
    bool, typer.Option("--skip-bad", help="Go on without documents that can't be used.")
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace results that are there already.")
]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Log every stage.")]


def add_commands(app: typer.Typer) -> None:
    """Register these commands on the command of the whole product."""
    app.command("train")(train)
    app.command("evaluate")(evaluate)
    app.command("report")(report)
    app.command("compare")(compare)
    app.command("describe")(describe)
    app.command("diagnose")(diagnose)
    app.add_typer(make_experiment_app(), name="experiment")


def train(
    data: DataArgument,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of the run; see training/configs.")
    ] = None,
    registry: RegistryOption = DEFAULT_REGISTRY,
    work: Annotated[
        Path, typer.Option(help="Folder of the run's work; started again on it, a run goes on.")
    ] = Path("runs/train"),
    seed: Annotated[
        int | None, typer.Option(help="Replaces the seed of the configuration.")
    ] = None,
    only_sparse: Annotated[
        bool,
        typer.Option("--only-sparse", help="Train the sparse model alone, without an encoder."),
    ] = False,
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Write files for TensorBoard to WORK/tensorboard."),
    ] = False,
    engine: EngineOption = "local",
    workers: WorkersOption = 1,
    skip_bad: SkipBadOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Train a model on a corpus and publish it in the registry."""
    configure_logging(verbose)
    started = time.monotonic()
    from models.bundle.registry import Registry
    from models.files.outputs import check_not_in_registry, check_own_folder, check_readable_file
    from training.configuration.run import read_config
    from training.data.dataset import open_dataset
    from training.pipeline.train import RUN_NAME, Run, follow
    from training.pipeline.train import train as train_run
    from training.runtime.distributed import joined_ranks
    from training.runtime.ray import checked_engine
    from training.runtime.tensorboard import check_tensorboard

    overrides: dict[str, Any] = {} if seed is None else {"seed": seed}
    if only_sparse:
        overrides["scorers"] = ["sparse"]
    if config is not None:
        check_readable_file(config, "--config")
    settings = read_config(config, overrides)
    computing = checked_engine(engine, workers)
    if tensorboard:
        check_tensorboard()
    with joined_ranks() as ranks:
        if not ranks.is_first:
            follow(settings, ranks)
            return
        check_not_in_registry(work, registry, "--work")
        Registry(registry).check_writable()
        check_own_folder(work, RUN_NAME, "--work")
        dataset = open_dataset(data, skip_bad=skip_bad)
        run = Run(settings, dataset, work, ranks, tensorboard, computing)
        version = train_run(run, Registry(registry))
    manifest = Registry(registry).open(version).manifest
    print(
        f"Version {version} of {str(registry)!r} is trained, in {time.monotonic() - started:.0f} s."
    )
    print(f"{manifest.label_count} labels, default scorer {manifest.default_scorer}.")
    print(f"Digest {manifest.digest}")


def evaluate(
    data: DataArgument,
    registry: RegistryOption = DEFAULT_REGISTRY,
    version: Annotated[str, typer.Option(help="A version's number, or 'current'.")] = "current",
    split: Annotated[str, typer.Option(help="train, dev or test.")] = "test",
    output: Annotated[
        Path, typer.Option(help="Folder for evaluation.json, evaluation.md and the pictures.")
    ] = Path("runs/evaluation"),
    baselines: Annotated[
        bool, typer.Option(help="Measure 30-nearest-neighbour and label-name matching too.")
    ] = True,
    predictions: Annotated[
        bool, typer.Option("--predictions", help="Write the rankings too, one file a scorer.")
    ] = False,
    k: Annotated[
        int | None,
        typer.Option("-k", min=1, help="With --predictions: labels a document. 10 by default."),
    ] = None,
    tail_dial: Annotated[
        float,
        typer.Option(help="Takes so many times the log of a label's prior off its scores."),
    ] = 0.0,
    overwrite: OverwriteOption = False,
    skip_bad: SkipBadOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verbose: VerboseOption = False,
) -> None:
    """Measure every scorer of a model on a split, and its probabilities: tables, JSON, pictures."""
    _check_k(k, predictions)
    configure_logging(verbose)
    from models.bundle.registry import Registry
    from models.files.failures import doing
    from models.files.outputs import check_output_folder
    from models.parts.storage import read_parts
    from models.predict.predictor import Predictor
    from training.assessment.assess import (
        MOST_PLACES,
        RESULT_NAMES,
        assess,
        check_assessable,
        check_tail_dial,
    )
    from training.assessment.predictions import PREDICTIONS_NAME, write_all_predictions
    from training.data.dataset import open_dataset

    check_tail_dial(tail_dial)
    names = [*RESULT_NAMES, PREDICTIONS_NAME] if predictions else RESULT_NAMES
    check_output_folder(output, names, registry=registry, overwrite=overwrite)
    bundle = Registry(registry).open(version)
    dataset = open_dataset(data, skip_bad=skip_bad)
    check_assessable(bundle, dataset, split, has_baselines=baselines)
    parts = read_parts(bundle)
    k = k or MOST_PLACES
    found = assess(
        Predictor(parts, default_scorer=bundle.manifest.default_scorer),
        dataset,
        split,
        num_training_documents=bundle.manifest.training_document_count,
        tfidf=parts.sparse.tfidf if baselines else None,
        num_places=max(k, MOST_PLACES),
        tail_dial=tail_dial,
        reliability=True,
    )
    with doing("writing the evaluation", output):
        paths = found.write(output)
        if predictions:
            paths += write_all_predictions(
                found.rankings, bundle.catalogue, dataset.labels, output / PREDICTIONS_NAME, k
            )
    print((paths[0] if as_json else paths[1]).read_text(encoding="utf-8").rstrip())
    if not as_json:
        print("\n" + "\n".join(f"Written: {path}" for path in paths))


def _check_k(k: int | None, predictions: bool) -> None:
    """Refuse a number of places that nothing would heed.

    Raises:
        ConfigError: No predictions are asked for.
    """
    if k is not None and not predictions:
        raise ConfigError(f"evaluate: -k {k} came without --predictions; wanted both or neither")


def report(
    data: DataArgument,
    registry: RegistryOption = DEFAULT_REGISTRY,
    version: Annotated[str, typer.Option(help="A version's number, or 'current'.")] = "current",
    split: Annotated[str, typer.Option(help="train, dev or test.")] = "dev",
    work: Annotated[
        Path | None,
        typer.Option(help="Folder of the run that made the model: its losses, time and memory."),
    ] = None,
    output: Annotated[Path, typer.Option(help="The HTML file.")] = Path("runs/report.html"),
    overwrite: OverwriteOption = False,
    baselines: Annotated[
        bool, typer.Option(help="Measure 30-nearest-neighbour and label-name matching too.")
    ] = True,
    skip_bad: SkipBadOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Write one page about a model: metrics, figures, examples, losses, time, configuration."""
    configure_logging(verbose)
    from models.bundle.registry import Registry
    from models.files.durable import write_lines_durably
    from models.files.failures import doing
    from models.files.outputs import check_output_file
    from models.parts.storage import read_parts
    from models.predict.predictor import Predictor
    from training.assessment.assess import assess, check_assessable
    from training.data.dataset import open_dataset
    from training.data.files import find_files
    from training.pipeline.train import RUN_NAME
    from training.reports.report import read_run_log, report_page

    inputs = [*find_files(data).paths, *([] if work is None else [work / RUN_NAME])]
    check_output_file(output, inputs=inputs, registry=registry, overwrite=overwrite)
    store = Registry(registry)
    number = store.resolve(version)
    bundle = store.open(number)
    log = None if work is None else read_run_log(work, bundle.manifest)
    dataset = open_dataset(data, skip_bad=skip_bad)
    check_assessable(bundle, dataset, split, has_baselines=baselines)
    parts = read_parts(bundle)
    found = assess(
        Predictor(parts, default_scorer=bundle.manifest.default_scorer),
        dataset,
        split,
        num_training_documents=bundle.manifest.training_document_count,
        tfidf=parts.sparse.tfidf if baselines else None,
        reliability=True,
    )
    page = report_page(bundle, number, dataset, split, found, log)
    with doing("writing the report", output):
        output.parent.mkdir(parents=True, exist_ok=True)
        write_lines_durably(output, [page])
    print(f"Written: {output}")


def compare(
    first: Annotated[Path, typer.Argument(help="A ranking from 'evaluate --predictions'.")],
    second: Annotated[Path, typer.Argument(help="Another ranking of the same documents.")],
    data: DataArgument,
    split: Annotated[str, typer.Option(help="The split that was ranked.")] = "test",
    k: Annotated[int, typer.Option("-k", min=1, help="Places that count.")] = 5,
    skip_bad: SkipBadOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verbose: VerboseOption = False,
) -> None:
    """Tell which of two rankings is better, and whether that is more than chance."""
    configure_logging(verbose)
    from models.files.outputs import check_readable_file
    from training.assessment.compare import compare_predictions
    from training.data.dataset import open_dataset

    for each in (first, second):
        check_readable_file(each, "compare")
    dataset = open_dataset(data, skip_bad=skip_bad)
    found = compare_predictions(first, second, dataset, split, k)
    print(json.dumps(found.to_json(), indent=1) if as_json else found.to_markdown())


def describe(
    label: Annotated[str | None, typer.Argument(help="A label's id or name.")] = None,
    registry: RegistryOption = DEFAULT_REGISTRY,
    version: Annotated[str, typer.Option(help="A version's number, or 'current'.")] = "current",
    keywords: Annotated[int, typer.Option(min=1, help="Most keywords of a label.")] = 20,
    all_labels: Annotated[
        bool, typer.Option("--all", help="Write all labels to a file instead.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="With --all: the file, one JSON object a label.")
    ] = None,
    overwrite: OverwriteOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a model knows of a label: its description and its keywords with their weights."""
    _check_choice(label, all_labels, output)
    from models.bundle.registry import Registry
    from models.files.outputs import check_output_file
    from training.reports.labels import index_of_label, report_labels, write_reports

    if output is not None:
        check_output_file(output, registry=registry, overwrite=overwrite)
    bundle = Registry(registry).open(version)
    if output is not None:
        written = {"num_labels": write_reports(bundle, output, keywords), "output": str(output)}
        print(json.dumps(written) if as_json else f"Written: {output}, a line for each label.")
    elif label is not None:
        index = index_of_label(bundle.catalogue, label)
        (report,) = report_labels(bundle, [index], keywords)
        if as_json:
            print(json.dumps(report.to_json(), indent=2, ensure_ascii=False))
        else:
            _print_report(report)


def _check_choice(label: str | None, all_labels: bool, output: Path | None) -> None:
    """Refuse options of `describe` that don't go together.

    Raises:
        ConfigError: Neither one label nor all are asked for, or both, or the file's name is amiss.
    """
    wanted = "wanted either a LABEL, or --all with --output FILE"
    if (label is None) != all_labels:
        came = f"both {label!r} and --all" if all_labels else "neither a label nor --all"
        raise ConfigError(f"describe: {came} came; {wanted}")
    if all_labels != (output is not None):
        came = "--all without --output" if all_labels else f"{label!r} with --output"
        raise ConfigError(f"describe: {came} came; {wanted}")


def _print_report(report: LabelReport) -> None:
    has_encoder = report.keywords_read is not None
    rows = {
        "name": report.name,
        "id": report.id,
        "description": report.description or "none given",
        "encoder reads" if has_encoder else "pseudo description": report.pseudo_description,
        "training documents": report.training_count or "none, so it has no keywords",
    }
    for name, value in rows.items():
        print(f"{name + ':':<20}{value}")
    if report.keywords:
        star = " (* stands in what the encoder reads)" if has_encoder else ""
        print(f"keywords, by weight{star}:")
    elif report.training_count:
        print(f"{'keywords:':<20}none, no word has a positive weight")
    for token, weight in report.keywords:
        print(f"  {'*' if token in (report.keywords_read or ()) else ' '} {weight:8.3f}  {token}")


def diagnose(
    data: DataArgument,
    registry: RegistryOption = DEFAULT_REGISTRY,
    version: Annotated[str, typer.Option(help="A version's number, or 'current'.")] = "current",
    split: Annotated[str, typer.Option(help="train, dev or test.")] = "dev",
    output: Annotated[
        Path, typer.Option(help="Folder for theory.json, theory.md and theory.png.")
    ] = Path("runs/diagnosis"),
    keywords: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Keywords a label; repeat it for more. 8, 16 and 32 by default."),
    ] = None,
    dim: Annotated[
        int | None,
        typer.Option(min=1, help="Dimensions of the dense encoder; those of the model by default."),
    ] = None,
    overwrite: OverwriteOption = False,
    skip_bad: SkipBadOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verbose: VerboseOption = False,
) -> None:
    """Measure what a label's keywords keep of its sparse classifier (DEPL, section 4)."""
    configure_logging(verbose)
    from models.bundle.registry import Registry
    from models.files.failures import doing
    from models.files.outputs import check_output_folder
    from training.data.dataset import open_dataset
    from training.diagnosis.measure import KEYWORD_COUNTS, diagnose_split
    from training.diagnosis.report import RESULT_NAMES, write_diagnosis

    check_output_folder(output, RESULT_NAMES, registry=registry, overwrite=overwrite)
    bundle = Registry(registry).open(version)
    found = diagnose_split(
        bundle,
        open_dataset(data, skip_bad=skip_bad),
        split,
        dim=dim,
        keyword_counts=keywords or KEYWORD_COUNTS,
    )
    with doing("writing the diagnosis", output):
        paths = write_diagnosis(found, bundle.catalogue, output)
    print((paths[0] if as_json else paths[1]).read_text(encoding="utf-8").rstrip())
    if not as_json:
        print("\n" + "\n".join(f"Written: {path}" for path in paths))


def configure_logging(verbose: bool) -> None:
    """Log to stderr; verbose concerns our own packages, not the libraries."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    for name in ("training", "models"):
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.WARNING)
