"""`longtail report`: one HTML page about a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longtail.training.commands.corpus_options import with_read_option
from longtail.training.commands.logs import configure_logging
from longtail.training.formats.options import RECOGNISED, CorpusOptions
from longtail.training.options import (
    DEFAULT_REGISTRY,
    BaselinesOption,
    DataArgument,
    JsonOption,
    OverwriteOption,
    RegistryOption,
    SplitOption,
    VersionOption,
)


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
    from longtail.training.runtime.claims import RUN_NAME

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
    print(deliver(json_file, figures, found.summary(bundle.manifest).text, [output]))
