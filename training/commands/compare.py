"""`longtail compare`: two rankings side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longtail.training.commands.corpus_options import with_read_option
from longtail.training.commands.logs import configure_logging
from longtail.training.formats.options import RECOGNISED, CorpusOptions
from longtail.training.options import (
    DataArgument,
    JsonOption,
    OverwriteOption,
    SplitOption,
)


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
    from longtail.training.assessment.compare import compare_predictions
    from longtail.training.assessment.predictions import read_ranked_documents
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
