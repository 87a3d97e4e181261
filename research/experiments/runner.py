"""Runs an experiment in a folder: trials, tables, picture, and the record of them.

A new experiment is a file with two functions: one returns an `Experiment`, the other, `command`, is
its command. A line in `research/__main__.py` then names it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from longtail.models.corpus.files import find_files
from longtail.models.files.failures import doing
from longtail.models.files.outputs import check_own_folder, held
from longtail.training.data.dataset import Dataset
from longtail.training.evaluation.plots import write_figure
from longtail.training.evaluation.record import check_record_file, deliver
from longtail.training.runtime.distributed import find_machine
from research.experiments.report import report_markdown
from research.experiments.trials import CONFIGURATION_NAME, Found, TrialStore, found_to_json


@dataclass(frozen=True, slots=True)
class Report:
    """The report of an experiment.

    Attributes:
        tables: Its tables for the record, as `docs/render.py` reads them, by name.
        figure: Its picture.
        words: What was measured on, where that needs words.
    """

    tables: Mapping[str, Any]
    figure: Figure
    words: str = ""


@dataclass(frozen=True, slots=True)
class Experiment:
    """What differs from one experiment to another.

    Attributes:
        name: Name of its command.
        dataset: The corpus; None for a made-up problem.
        split: What is measured on.
        num_seeds: Seeds 0 to this number less one.
        plan: What else decides the figures; as JSON has it.
        run: Runs the trials that the store lacks, on a device, and returns all figures.
        report: Returns the report of them.
    """

    name: str
    dataset: Dataset | None
    split: str
    num_seeds: int
    plan: Mapping[str, Any]
    run: Callable[[TrialStore, str], Found]
    report: Callable[[Found], Report]


def run_experiment(
    make: Callable[[], Experiment],
    output: Path,
    *,
    data: Path | None = None,
    json_file: Path | None = None,
) -> str:
    """Run what the folder does not hold yet, write results.json, .md and .png, and tell of them.

    Args:
        make: Returns the experiment; called when the folder is held.
        output: Folder of the experiment.
        data: Folder of the corpus, if there is one.
        json_file: JSON file of the record (see `longtail.training.evaluation.record.deliver`).
    """
    inputs = [] if data is None else find_files(data).paths
    check_record_file(json_file, inputs=inputs, overwrite=True)  # as the files in the folder are
    with _held_folder(output):
        experiment = make()
        device = find_machine("float32").device
        configuration = {
            "experiment": experiment.name,
            "data_fingerprint": experiment.dataset and experiment.dataset.fingerprint,
            "split": experiment.split,
            "plan": experiment.plan,
            "device": device,
            "torch": torch.__version__,
        }
        found = experiment.run(TrialStore(output, configuration), device)
        report = experiment.report(found)
        figures = {
            "configuration": configuration,
            "results": found_to_json(found),
            **report.tables,
        }
        text = report_markdown(experiment.name, report.tables, report.words)
        paths = write_results(output, figures, text, report.figure)
    seeds = range(experiment.num_seeds)
    return deliver(json_file, figures, text.rstrip(), paths, seeds=seeds)


def write_results(
    folder: Path, figures: Mapping[str, Any], markdown: str, figure: Figure
) -> list[Path]:
    """Write JSON, tables and picture, and return their paths in this order."""
    paths = [folder / name for name in ("results.json", "results.md", "results.png")]
    paths[0].write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    paths[1].write_text(markdown, "utf-8")
    write_figure(figure, paths[2])
    return paths


@contextmanager
def _held_folder(output: Path) -> Iterator[None]:
    """Hold the folder of an experiment, and leave none behind where nothing was written."""
    check_own_folder(output, CONFIGURATION_NAME, "--output")
    is_new = not output.exists()
    refusal = f"--output {str(output)!r}: another experiment works in it; wait for it"
    try:
        with doing("running the experiment", output):
            output.mkdir(parents=True, exist_ok=True)
            with held(output / ".lock", refusal):
                yield
    finally:
        if is_new:
            with suppress(OSError):  # it holds something by now
                output.rmdir()
