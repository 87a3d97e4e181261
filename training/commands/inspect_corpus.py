"""`longtail inspect`: what is understood of a corpus, before anything is trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from longtail.training.commands.corpus_options import with_corpus_options
from longtail.training.commands.logs import configure_logging
from longtail.training.formats.options import RECOGNISED, CorpusOptions
from longtail.training.options import (
    ConfidentialOption,
    DataArgument,
    JsonOption,
    OverwriteOption,
)


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
    """Show what is understood of a corpus: counts, the tail, examples, oddities, training time."""
    configure_logging()
    from longtail.models.files.failures import doing
    from longtail.models.files.outputs import check_output_folder
    from longtail.training.data.dataset import open_dataset
    from longtail.training.data.files import find_files
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
