"""The experiments of `longtail experiment`, from a corpus to table, picture and configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from training.corpus import Dataset, open_dataset
from training.experiment_data import read_experiment_data
from training.experiments import Trial, choose_settings, run_trials, write_experiment
from training.negative_mining import (
    NegativeMiningPlan,
    draw_negative_mining,
    negative_mining_markdown,
    run_negative_mining,
)
from training.neural import find_machine
from training.sampling_bias import (
    SETTINGS,
    TASKS,
    SamplingBiasPlan,
    draw_sampling_bias,
    run_sampling_bias,
    sampling_bias_markdown,
)


def run_sampling_bias_experiment(
    data: Path,
    folder: Path,
    *,
    num_seeds: int,
    split: str,
    settings: str | None = None,
    plan: SamplingBiasPlan,
) -> list[Path]:
    """Run what the folder does not hold yet, and write results.json, results.md, results.png.

    Args:
        data: Folder of the corpus.
        folder: Of the experiment.
        num_seeds: Seeds 0 to this number less one.
        split: "dev" or "test".
        settings: Names between commas; None for all.
        plan: How to train.

    Raises:
        ConfigError: A setting is not known, or the folder holds another experiment.
        DataError: The corpus can't be used, or is too small.
    """
    dataset = open_dataset(data)
    device = find_machine("float32").device
    configuration = _configuration("sampling-bias", dataset, split, asdict(plan), device)
    trials = sampling_bias_trials(num_seeds, choose_settings(SETTINGS, settings))
    run = partial(run_sampling_bias, read_experiment_data(dataset, split), plan)
    found = run_trials(folder, configuration, trials, lambda trial: run(trial, device))
    return write_experiment(
        folder, found, sampling_bias_markdown(found), draw_sampling_bias(found), configuration
    )


def sampling_bias_trials(num_seeds: int, settings: Iterable[str]) -> list[Trial]:
    """Return the trials: every setting of every task with one seed before the next seed."""
    names = list(settings)
    return [
        Trial(task, name, seed) for seed in range(num_seeds) for task in TASKS for name in names
    ]


def run_negative_mining_experiment(
    data: Path,
    folder: Path,
    *,
    num_seeds: int,
    split: str,
    settings: str | None = None,
    plan: NegativeMiningPlan,
) -> list[Path]:
    """Run what the folder does not hold yet, and write results.json, results.md, results.png.

    Args:
        data: Folder of the corpus.
        folder: Of the experiment.
        num_seeds: Seeds 0 to this number less one.
        split: "dev" or "test".
        settings: Names between commas; None for all.
        plan: How to train.

    Raises:
        ConfigError: A setting is not known, the folder holds another experiment, or B is not below
            the number of labels.
        DataError: The corpus can't be used.
    """
    dataset = open_dataset(data)
    device = find_machine("float32").device
    configuration = _configuration("negative-mining", dataset, split, asdict(plan), device)
    chosen = choose_settings(plan.settings, settings)
    read = read_experiment_data(dataset, split)
    trials = plan.trials(num_seeds, chosen, num_labels=len(read.counts))
    run = partial(run_negative_mining, read, plan)
    found = run_trials(folder, configuration, trials, lambda trial: run(trial, device))
    return write_experiment(
        folder, found, negative_mining_markdown(found), draw_negative_mining(found), configuration
    )


def _configuration(
    name: str, dataset: Dataset, split: str, plan: dict[str, Any], device: str
) -> dict[str, Any]:
    return {
        "experiment": name,
        "data_fingerprint": dataset.fingerprint,
        "split": split,
        "plan": plan,
        "device": device,
        "torch": torch.__version__,
    }
