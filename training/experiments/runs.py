"""The experiments of `longtail experiment`, from a corpus to table, picture and configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from models.errors import ConfigError, DataError
from models.names import TEXT
from training.configuration.run import TrainingConfig
from training.data.dataset import Dataset, open_dataset
from training.experiments.adversarial.bench import SETTINGS as ADVERSARIAL_SETTINGS
from training.experiments.adversarial.bench import AdversarialPlan, Bench
from training.experiments.adversarial.report import Clock, adversarial_markdown, draw_adversarial
from training.experiments.adversarial.run import run_task
from training.experiments.adversarial.tasks import (
    CORPUS_TASKS,
    CorpusTaskName,
    LearningTask,
    MixtureProblem,
    corpus_tasks,
)
from training.experiments.data import read_experiment_data
from training.experiments.depl.ablations import ablation_trials, choose_ablations, with_epochs
from training.experiments.depl.report import ablation_markdown, draw_ablations
from training.experiments.depl.runs import AblationRuns
from training.experiments.negative_mining import (
    NegativeMiningPlan,
    draw_negative_mining,
    negative_mining_markdown,
    run_negative_mining,
)
from training.experiments.sampling_bias import (
    SETTINGS,
    TASKS,
    SamplingBiasPlan,
    draw_sampling_bias,
    run_sampling_bias,
    sampling_bias_markdown,
)
from training.experiments.trials import (
    Trial,
    Values,
    choose_settings,
    claim,
    read_trials,
    run_trials,
    write_experiment,
)
from training.runtime.machine import find_machine
from training.runtime.ray import LOCAL, Engine


def run_sampling_bias_experiment(
    data: Path,
    folder: Path,
    *,
    num_seeds: int,
    split: str,
    settings: str | None = None,
    plan: SamplingBiasPlan,
    engine: Engine = LOCAL,
) -> list[Path]:
    """Run what the folder does not hold yet, and write results.json, results.md, results.png.

    Args:
        data: Folder of the corpus.
        folder: Of the experiment.
        num_seeds: Seeds 0 to this number less one.
        split: "dev" or "test".
        settings: Names between commas; None for all.
        plan: How to train.
        engine: What runs the trials.

    Raises:
        ConfigError: A setting is not known, or the folder holds another experiment.
        DataError: The corpus can't be used, or is too small.
    """
    dataset = open_dataset(data)
    device = find_machine("float32").device
    configuration = _configuration("sampling-bias", dataset, split, asdict(plan), device)
    trials = sampling_bias_trials(num_seeds, choose_settings(SETTINGS, settings))
    run = partial(run_sampling_bias, read_experiment_data(dataset, split), plan)
    found = run_trials(folder, configuration, trials, partial(_on_device, run, device), engine)
    return write_experiment(
        folder, found, sampling_bias_markdown(found), draw_sampling_bias(found), configuration
    )


def _on_device(run: Callable[[Trial, str], Values], device: str, trial: Trial) -> Values:
    return run(trial, device)


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
    engine: Engine = LOCAL,
) -> list[Path]:
    """Run what the folder does not hold yet, and write results.json, results.md, results.png.

    Args:
        data: Folder of the corpus.
        folder: Of the experiment.
        num_seeds: Seeds 0 to this number less one.
        split: "dev" or "test".
        settings: Names between commas; None for all.
        plan: How to train.
        engine: What runs the trials.

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
    found = run_trials(folder, configuration, trials, partial(_on_device, run, device), engine)
    return write_experiment(
        folder, found, negative_mining_markdown(found), draw_negative_mining(found), configuration
    )


def run_adversarial_experiment(
    data: Path | None,
    folder: Path,
    *,
    num_seeds: int,
    synthetic: Sequence[int] = (),
    task: CorpusTaskName | None = None,
    settings: str | None = None,
    plan: AdversarialPlan,
    clock: Clock = "cpu",
    engine: Engine = LOCAL,
) -> list[Path]:
    """Run what the folder does not hold yet, and write results.json, results.md, results.png.

    Everything is tuned on one half of the dev split's documents, at most, and measured on others.

    Args:
        data: Folder of the corpus; None for the made-up problem alone.
        folder: Of the experiment.
        num_seeds: Seeds 0 to this number less one.
        synthetic: Numbers of labels of the made-up problem.
        task: Of the corpus; None for both.
        settings: Names between commas; None for all.
        plan: How to train.
        clock: Whose seconds times to a target and the picture have.
        engine: What runs the trials.

    Raises:
        ConfigError: There is nothing to learn, a setting is not known, or the folder holds another
            experiment.
        DataError: The corpus can't be used.
    """
    if data is None and not synthetic:
        raise ConfigError("adversarial negatives: nothing to learn; give a corpus, or --synthetic")
    if data is not None and synthetic:
        raise ConfigError(
            "adversarial negatives: a corpus and --synthetic; give each an --output of its own"
        )
    if synthetic and task:
        raise ConfigError(
            f"adversarial negatives: --task {task} is of a corpus, and --synthetic has none; leave "
            "one of them out"
        )
    chosen = choose_settings(ADVERSARIAL_SETTINGS, settings)
    device = find_machine("float32").device
    dataset = None if data is None else open_dataset(data)
    configuration = _configuration("adversarial", dataset, "dev", asdict(plan), device)
    configuration["threads"] = 1 if engine.is_ray else torch.get_num_threads()
    claim(folder, configuration)
    for each in _tasks(dataset, synthetic, [task] if task else CORPUS_TASKS, plan):
        run_task(folder, Bench(each, plan, device), chosen, num_seeds, engine)
    found = read_trials(folder)
    return write_experiment(
        folder,
        found,
        adversarial_markdown(found, clock),
        draw_adversarial(found, clock),
        configuration,
    )


def run_depl_experiment(
    data: Path,
    folder: Path,
    *,
    num_seeds: int,
    split: str,
    settings: str | None = None,
    base: TrainingConfig,
    epochs: int | None = None,
    engine: Engine = LOCAL,
) -> list[Path]:
    """Run what the folder does not hold yet, and write results.json, results.md, results.png.

    Args:
        data: Folder of the corpus.
        folder: Of the experiment.
        num_seeds: Seeds 0 to this number less one.
        split: "dev" or "test".
        settings: Names between commas; None for all that the corpus and the configuration can have.
        base: The run that settings change; its seed is not used.
        epochs: Of both neural stages; None for those of the base.
        engine: What trains and measures the settings.

    Raises:
        ConfigError: A setting is not known or can't be had, the base trains no dual encoder, the
            corpus has features for documents, or the folder holds another experiment.
        DataError: The corpus can't be used, or has no dev split.
    """
    if engine.is_ray:  # workers may be elsewhere
        data, folder = data.resolve(), folder.resolve()
    dataset = open_dataset(data)
    _check_depl(base, dataset)
    if epochs is not None:
        base = with_epochs(base, epochs)
    names = choose_ablations(settings, base, dataset.labels)
    trials = ablation_trials(names, base, num_seeds)
    machine = find_machine(base.precision)
    plan = {"base": base.settings_used(TEXT) | {"seed": "0, 1, ..."}}
    configuration = _configuration("depl", dataset, split, plan, machine.device)
    configuration["is_bfloat16"] = machine.is_bfloat16
    runs = AblationRuns(dataset, base, split, folder)
    if engine.is_ray:
        claim(folder, configuration)
        runs.measure_on_ray(trials, engine.num_workers)
    evidence = runs.evidence(run_trials(folder, configuration, trials, runs.figures))
    return write_experiment(
        folder,
        evidence.found,
        ablation_markdown(evidence, runs.told()),
        draw_ablations(evidence),
        configuration,
    )


def _check_depl(base: TrainingConfig, dataset: Dataset) -> None:
    """Refuse what there is nothing to ablate of.

    Raises:
        ConfigError: The base trains no dual encoder, or there are no texts.
        DataError: There is no dev split.
    """
    if not base.is_dense:
        raise ConfigError(
            f"depl: scorers {', '.join(base.scorers)} came; wanted 'retrieval' among them"
        )
    if dataset.input != TEXT:
        raise ConfigError(
            f"depl: the documents of {str(dataset.folder)!r} are features, which no encoder "
            "reads; give a corpus of texts"
        )
    if "dev" not in dataset.split_names:
        raise DataError(
            f"{dataset.folder}: no dev split, on which settings are compared and scorers are "
            "blended; give one"
        )


def _tasks(
    dataset: Dataset | None,
    synthetic: Sequence[int],
    tasks: Sequence[CorpusTaskName],
    plan: AdversarialPlan,
) -> Iterator[LearningTask]:
    if dataset is not None:
        data = read_experiment_data(dataset, "dev")
        yield from corpus_tasks(data, tasks, dim=plan.dim, num_judged=plan.num_judged)
    for num_labels in synthetic:
        yield MixtureProblem(num_labels).make(plan.num_judged)


def _configuration(
    name: str, dataset: Dataset | None, split: str, plan: dict[str, Any], device: str
) -> dict[str, Any]:
    return {
        "experiment": name,
        "data_fingerprint": None if dataset is None else dataset.fingerprint,
        "split": split,
        "plan": plan,
        "device": device,
        "torch": torch.__version__,
    }
