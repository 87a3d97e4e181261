"""`longtail describe` and `longtail inspect`: facts about a label, and about a corpus."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.models.corpus.columns import RECOGNISED, CorpusOptions
from longtail.models.errors import ConfigError
from longtail.training.commands.options import (
    DEFAULT_REGISTRY,
    ConfidentialOption,
    DataArgument,
    JsonOption,
    OverwriteOption,
    RegistryOption,
    VersionOption,
    configure_logging,
    with_corpus_options,
)

if TYPE_CHECKING:
    from longtail.training.reports.labels import LabelReport


def describe(
    label: Annotated[str | None, typer.Argument(help="A label's id or name.")] = None,
    registry: RegistryOption = DEFAULT_REGISTRY,
    version: VersionOption = "current",
    keywords: Annotated[int, typer.Option(min=1, help="Keywords of a label, at most.")] = 20,
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
    from longtail.models.bundle.registry import Registry
    from longtail.models.files.outputs import check_output_file
    from longtail.training.reports.labels import index_of_label, report_labels, write_reports

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
            _print_report(report, bundle.manifest.is_confidential)


def _check_choice(label: str | None, all_labels: bool, output: Path | None) -> None:
    expected = "expected either a LABEL, or --all with --output FILE"
    if (label is None) != all_labels:
        got = f"both {label!r} and --all" if all_labels else "neither a label nor --all"
        raise ConfigError(f"describe: got {got}; {expected}")
    if all_labels != (output is not None):
        got = "--all without --output" if all_labels else f"{label!r} with --output"
        raise ConfigError(f"describe: got {got}; {expected}")


def _print_report(report: LabelReport, is_confidential: bool) -> None:
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
        reason = "the model is confidential" if is_confidential else "no word has a positive weight"
        print(f"{'keywords:':<20}none, {reason}")
    for token, weight in report.keywords:
        print(f"  {'*' if token in (report.keywords_read or ()) else ' '} {weight:8.3f}  {token}")


@with_corpus_options
def inspect_corpus(
    data: DataArgument,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for inspection.md, inspection.json and tail.png, if wanted."),
    ] = None,
    confidential: ConfidentialOption = False,
    json_file: JsonOption = None,
    overwrite: OverwriteOption = False,
    corpus: CorpusOptions = RECOGNISED,
) -> None:
    """Show how a corpus is read: counts, the tail, examples, oddities, training time."""
    configure_logging()
    from longtail.models.corpus.files import find_files
    from longtail.models.files.failures import doing
    from longtail.models.files.outputs import check_output_folder
    from longtail.training.data.dataset import open_dataset
    from longtail.training.evaluation.record import check_record_file, deliver
    from longtail.training.reports.inspection import inspect_dataset
    from longtail.training.reports.inspection_text import RESULT_NAMES, text_of, write_inspection

    inputs = find_files(data, corpus).paths
    if output is not None:
        check_output_folder(output, RESULT_NAMES, inputs=inputs, overwrite=overwrite)
    check_record_file(json_file, inputs=inputs, overwrite=overwrite)
    dataset = open_dataset(data, replace(corpus, skip_bad=True))
    found = inspect_dataset(dataset, is_confidential=confidential)
    paths: list[Path] = []
    if output is not None:
        with doing("writing the inspection", output):
            paths = write_inspection(found, output)
    print(
        deliver(json_file, {"data": dataset.fingerprint, **found.to_json()}, text_of(found), paths)
    )
