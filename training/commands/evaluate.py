"""`longtail evaluate`, `longtail compare` and `longtail report`: the quality of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.models.corpus.columns import RECOGNISED, CorpusOptions
from longtail.models.errors import ConfigError
from longtail.training.commands.options import (
    DEFAULT_REGISTRY,
    BaselinesOption,
    DataArgument,
    JsonOption,
    OverwriteOption,
    RegistryOption,
    SplitOption,
    VersionOption,
    configure_logging,
    with_read_option,
)

if TYPE_CHECKING:
    from longtail.models.bundle.bundle import Bundle
    from longtail.training.assessment.assess import Assessment
    from longtail.training.data.dataset import Dataset


@with_read_option
def evaluate(
    data: DataArgument,
    registry: RegistryOption = DEFAULT_REGISTRY,
    version: VersionOption = "current",
    split: SplitOption = "test",
    output: Annotated[
        Path, typer.Option(help="Folder for evaluation.json, evaluation.md and the pictures.")
    ] = Path("runs/evaluation"),
    baselines: BaselinesOption = True,
    predictions: Annotated[
        bool, typer.Option("--predictions", help="Write the rankings too, one file a scorer.")
    ] = False,
    k: Annotated[
        int | None,
        typer.Option("-k", min=1, help="With --predictions: labels a document. 10 by default."),
    ] = None,
    per_label: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV file with the figures of each label: predicted, right, precision, recall and "
            "F1 with 95 % intervals, and the label that it is confused with most often.",
        ),
    ] = None,
    tail_dial: Annotated[
        float,
        typer.Option(
            help="Logit adjustment: subtracts this times log(label prior) from every score; "
            "higher favours rare labels."
        ),
    ] = 0.0,
    aim: Annotated[
        str | None,
        typer.Option(
            help="Measure to rank for: precision, or propensity (PSP@k), by the scorers that have "
            "probabilities. Not with --tail-dial."
        ),
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Print all tables, as evaluation.md has them.")
    ] = False,
    json_file: JsonOption = None,
    overwrite: OverwriteOption = False,
    corpus: CorpusOptions = RECOGNISED,
) -> None:
    """Say how good a model is on a split; tables, JSON and pictures of all its scorers."""
    _check_k(k, predictions)
    configure_logging()
    from longtail.models.bundle.registry import Registry
    from longtail.models.files.failures import doing
    from longtail.models.files.outputs import check_output_file, check_output_folder
    from longtail.models.options import asked_of
    from longtail.training.assessment.assess import MAX_K, assess_bundle, result_names
    from longtail.training.assessment.compare import PREDICTIONS_NAME
    from longtail.training.assessment.untrained import open_as_trained
    from longtail.training.evaluation.record import check_record_file, deliver

    query = asked_of({"k": 1, "tail_dial": tail_dial, "aim": aim}, 1)  # refuses other aims
    names = [*result_names(), *[PREDICTIONS_NAME] * predictions]
    check_output_folder(output, names, registry=registry, overwrite=overwrite)
    bundle = Registry(registry).open(version)
    dataset = open_as_trained(data, corpus, [bundle], bundle.catalogue)
    check_record_file(json_file, inputs=dataset.paths, registry=registry, overwrite=overwrite)
    if per_label is not None:
        _check_per_label(bundle)
        inputs = list(dataset.paths)
        check_output_file(per_label, inputs=inputs, registry=registry, overwrite=overwrite)
    _check_at_most(k, len(bundle.catalogue))
    k = k or MAX_K
    found = assess_bundle(
        bundle, dataset, split,
        baselines=baselines, k=max(k, MAX_K), query=query,
        answers=per_label is not None,
    )  # fmt: skip
    with doing("writing the evaluation", output):
        paths = found.write(output)
        if predictions:
            paths += _write_predictions(output / PREDICTIONS_NAME, found, bundle, dataset, split, k)
        if per_label is not None:
            _write_per_label(per_label, found, bundle)
            paths.append(per_label)
    text = found.short_table(bundle.manifest)
    if show_all:
        text = paths[1].read_text(encoding="utf-8").rstrip()
    print(deliver(json_file, found.figures_of(bundle, dataset, split), text, paths))


def _write_predictions(
    folder: Path, found: Assessment, bundle: Bundle, dataset: Dataset, split: str, k: int
) -> list[Path]:
    from longtail.training.assessment.compare import RankedDocuments, spread, write_all_predictions

    left_out = found.left_out
    assert left_out is not None  # a bundle was measured
    ranked = {name: spread(x, left_out.is_left_out) for name, x in found.rankings.items()}
    paths = write_all_predictions(ranked, bundle.catalogue, dataset.labels, folder, k)
    documents = RankedDocuments(
        dataset.fingerprint, split, bundle.manifest.digest, dataset.options.to_json(),
        dataset.division, left_out.is_left_out.nonzero()[0].tolist(), not left_out.unknown,
        [each.id for each in dataset.split(split)], [each.id for each in dataset.labels],
    )  # fmt: skip
    return [*paths, documents.write(folder)]


def _check_per_label(bundle: Bundle) -> None:
    """Refuse a model without a threshold, from which labels count as predicted."""
    scorer = bundle.manifest.default_scorer
    if scorer not in bundle.manifest.thresholds:
        raise ConfigError(
            f"--per-label: the default scorer {scorer!r} has no threshold from which its labels "
            "count as predicted; expected one that was calibrated on a dev split"
        )


def _write_per_label(path: Path, found: Assessment, bundle: Bundle) -> None:
    from longtail.training.assessment.per_label import measure_labels, write_per_label

    assert found.answers is not None  # they were asked for
    threshold = bundle.manifest.thresholds[bundle.manifest.default_scorer]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_per_label(path, measure_labels(found.answers, threshold), bundle.catalogue)


def _check_k(k: int | None, predictions: bool) -> None:
    if k is not None and not predictions:
        raise ConfigError(f"evaluate: got -k {k} without --predictions; expected both or neither")


def _check_at_most(k: int | None, num_labels: int) -> None:
    """Refuse more labels a document than the model has, as `longtail predict` does."""
    if k is not None and k > num_labels:
        raise ConfigError(f"-k: got {k}, expected 1 to {num_labels}, the number of labels")


@with_read_option
def compare(
    first: Annotated[Path, typer.Argument(help="A ranking from 'evaluate --predictions'.")],
    second: Annotated[Path, typer.Argument(help="Another ranking of the same documents.")],
    data: DataArgument,
    split: SplitOption = "test",
    k: Annotated[int, typer.Option("-k", min=1, help="First k labels of a document count.")] = 5,
    json_file: JsonOption = None,
    overwrite: OverwriteOption = False,
    corpus: CorpusOptions = RECOGNISED,
) -> None:
    """Tell which of two rankings is better, and whether that is more than chance."""
    configure_logging()
    from longtail.models.files.outputs import check_readable_file
    from longtail.training.assessment.compare import compare_predictions, read_ranked_documents
    from longtail.training.assessment.untrained import division_named, open_read_as
    from longtail.training.evaluation.record import check_record_file, deliver

    for each in (first, second):
        check_readable_file(each, "compare")
    before = read_ranked_documents(first) or read_ranked_documents(second)
    options, division = (before.options, before.division) if before else ({}, None)
    dataset = open_read_as(data, corpus, options, division_named(division))
    check_record_file(json_file, inputs=[*dataset.paths, first, second], overwrite=overwrite)
    found = compare_predictions(first, second, dataset, split, k)
    figures = {"data": dataset.fingerprint, "split": split, **found.to_json()}
    print(deliver(json_file, figures, found.to_markdown()))


@with_read_option
def report(
    data: DataArgument,
    registry: RegistryOption = DEFAULT_REGISTRY,
    version: VersionOption = "current",
    split: SplitOption = "dev",
    work: Annotated[
        Path | None,
        typer.Option(help="Folder of the run that made the model: its losses, time and memory."),
    ] = None,
    output: Annotated[Path, typer.Option(help="The HTML file.")] = Path("runs/report.html"),
    baselines: BaselinesOption = True,
    json_file: JsonOption = None,
    overwrite: OverwriteOption = False,
    corpus: CorpusOptions = RECOGNISED,
) -> None:
    """Write one page about a model: how good it is, figures, losses, configuration."""
    configure_logging()
    from longtail.models.bundle.registry import Registry
    from longtail.models.files.durable import write_lines_durably
    from longtail.models.files.failures import doing
    from longtail.models.files.outputs import check_output_file
    from longtail.training.assessment.assess import assess_bundle
    from longtail.training.assessment.untrained import open_as_trained
    from longtail.training.evaluation.record import check_record_file, deliver
    from longtail.training.reports.report import read_run_log, report_page
    from longtail.training.runtime.kept import RUN_NAME

    store = Registry(registry)
    number = store.resolve(version)
    bundle = store.open(number)
    dataset = open_as_trained(data, corpus, [bundle], bundle.catalogue)
    inputs = [*dataset.paths, *([] if work is None else [work / RUN_NAME])]
    check_output_file(output, inputs=inputs, registry=registry, overwrite=overwrite)
    check_record_file(json_file, inputs=inputs, registry=registry, overwrite=overwrite)
    log = None if work is None else read_run_log(work, bundle.manifest)
    has_threshold = bundle.manifest.default_scorer in bundle.manifest.thresholds
    found = assess_bundle(bundle, dataset, split, baselines=baselines, answers=has_threshold)
    page = report_page(bundle, number, split, found, log)
    with doing("writing the report", output):
        output.parent.mkdir(parents=True, exist_ok=True)
        write_lines_durably(output, [page], is_private=True)
    figures = found.figures_of(bundle, dataset, split)
    if log is not None:
        figures["run"] = log.to_json()
    print(deliver(json_file, figures, found.short_table(bundle.manifest), [output]))
