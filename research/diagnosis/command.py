"""`python -m research diagnose`: the theory of DEPL, measured on a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longtail.models.corpus.columns import RECOGNISED, CorpusOptions
from longtail.training.commands.options import (
    DEFAULT_REGISTRY,
    DataArgument,
    JsonOption,
    OverwriteOption,
    RegistryOption,
    SplitOption,
    VersionOption,
    configure_logging,
    with_read_option,
)


@with_read_option
def diagnose(
    data: DataArgument,
    registry: RegistryOption = DEFAULT_REGISTRY,
    version: VersionOption = "current",
    split: SplitOption = "dev",
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
    json_file: JsonOption = None,
    overwrite: OverwriteOption = False,
    corpus: CorpusOptions = RECOGNISED,
) -> None:
    """Measure what a label's keywords keep of its sparse classifier (DEPL, section 4)."""
    configure_logging()
    from longtail.models.bundle.registry import Registry
    from longtail.models.files.failures import doing
    from longtail.models.files.outputs import check_output_folder
    from longtail.training.assessment.untrained import open_as_trained
    from longtail.training.evaluation.record import check_record_file, deliver
    from research.diagnosis.measure import KEYWORD_COUNTS, diagnose_split
    from research.diagnosis.report import RESULT_NAMES, diagnosis_to_json, write_diagnosis

    check_output_folder(output, RESULT_NAMES, registry=registry, overwrite=overwrite)
    bundle = Registry(registry).open(version)
    dataset = open_as_trained(data, corpus, [bundle], bundle.catalogue)
    check_record_file(json_file, inputs=dataset.paths, registry=registry, overwrite=overwrite)
    found = diagnose_split(
        bundle,
        dataset,
        split,
        dim=dim,
        keyword_counts=keywords or KEYWORD_COUNTS,
    )
    with doing("writing the diagnosis", output):
        paths = write_diagnosis(found, bundle.catalogue, output)
    figures = {
        "model": bundle.manifest.digest,
        "data": dataset.fingerprint,
        "split": split,
        **diagnosis_to_json(found, bundle.catalogue),
    }
    print(deliver(json_file, figures, paths[1].read_text(encoding="utf-8").rstrip(), paths))
