"""Trials of an experiment, each kept when it is done, so that an interrupted one resumes.

A *trial* is one setting of one task with one seed; its figures are in a small JSON file under
`trials`. What is reported are all trials that the folder holds, as mean and standard error over
the seeds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from longtail.models.errors import ConfigError
from longtail.models.files.durable import read_json, write_json_durably
from longtail.models.files.outputs import check_own_folder
from longtail.training.runtime.kept import claim

CONFIGURATION_NAME, _TRIALS = "configuration.json", "trials"

Values = dict[str, float]
"""Figures by name; fractions."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of an experiment.

    Attributes:
        task: What is learned.
        setting: How.
        seed: Seed of everything random in it.
    """

    task: str
    setting: str
    seed: int

    @property
    def file_name(self) -> str:
        """Where its figures lie."""
        return f"{self.task}.{self.setting}.{self.seed}.json"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        values: One of each seed.
        seeds: The values' seeds, rising; by default 0 to their number less one.
    """

    values: tuple[float, ...]
    seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Number the seeds, where none are given."""
        if not self.seeds:
            object.__setattr__(self, "seeds", tuple(range(len(self.values))))

    @property
    def by_seed(self) -> dict[int, float]:
        """The value of each seed."""
        return dict(zip(self.seeds, self.values, strict=True))

    def at_seeds(self, seeds: Iterable[int]) -> Estimate:
        """Return it over those of some seeds that it has; at least one."""
        own = self.by_seed
        kept = tuple(seed for seed in seeds if seed in own)
        return Estimate(tuple(own[seed] for seed in kept), kept)

    def less(self, other: Estimate) -> Estimate | None:
        """Return the differences over the seeds that both have; None where there is none."""
        others = other.by_seed
        shared = tuple(seed for seed in self.seeds if seed in others)
        if not shared:
            return None
        return Estimate(tuple(self.by_seed[seed] - others[seed] for seed in shared), shared)

    @property
    def mean(self) -> float:
        """The mean."""
        return math.fsum(self.values) / len(self.values)

    @property
    def standard_error(self) -> float | None:
        """Standard deviation (of n - 1) over the root of n; none for a single seed."""
        if len(self.values) == 1:
            return None
        return float(np.std(self.values, ddof=1)) / math.sqrt(len(self.values))

    def __str__(self) -> str:
        """Return it in percent, with its standard error where it has one."""
        error = self.standard_error
        return f"{100 * self.mean:.2f}" + ("" if error is None else f" ± {100 * error:.2f}")


def ratio(above: Estimate, below: Estimate) -> tuple[float, float | None]:
    """Return the ratio of two means over the seeds that both have, and its standard error.

    The error is that of the differences a seed, by the delta method: deviations of `above` minus
    ratio times those of `below`; none for a single seed.

    Args:
        above: With a seed in common with the other, as all settings have the seed 0.
        below: What it is divided by.
    """
    above, below = above.at_seeds(below.seeds), below.at_seeds(above.seeds)
    if not below.mean:
        return float("inf"), None
    value = above.mean / below.mean
    differences = [a - value * b for a, b in zip(above.values, below.values, strict=True)]
    error = Estimate(tuple(differences)).standard_error
    return value, None if error is None else error / below.mean


Found = Mapping[str, Mapping[str, Mapping[str, Estimate]]]
"""Estimates by task, setting and name of the figure."""


def choose_settings(
    known: Iterable[str], requested: str | None, option: str = "--settings"
) -> list[str]:
    """Return the settings to run, in the order of those known.

    Args:
        known: All settings.
        requested: Names between commas; None for all.
        option: What asked for them.
    """
    names = list(known)
    if requested is None:
        return names
    chosen = [name.strip() for name in requested.split(",")]
    if unknown := [name for name in chosen if name not in names]:
        raise ConfigError(
            f"{option}: got {', '.join(map(repr, unknown))}, expected some of {', '.join(names)}"
        )
    return [name for name in names if name in chosen]


@dataclass(frozen=True, slots=True)
class TrialStore:
    """The trials of an experiment in its folder, which is claimed by the first that is kept.

    Attributes:
        folder: The experiment's folder.
        configuration: What decides the figures of a trial; as JSON has it.
    """

    folder: Path
    configuration: Mapping[str, Any]

    def run(self, trials: Sequence[Trial], run: Callable[[Trial], Values]) -> Found:
        """Run the trials that are not there yet, and return the figures of all that are.

        Args:
            trials: In the order of the report.
            run: Returns the figures of one.
        """
        claim_folder(self.folder, self.configuration)
        with tqdm(trials, unit="trial") as bar:
            for trial in bar:
                bar.set_postfix_str(f"{trial.task} {trial.setting} seed {trial.seed}")
                self.keep(trial, run)
        return self.read(list(dict.fromkeys((t.task, t.setting) for t in trials)))

    def keep(self, trial: Trial, run: Callable[[Trial], Values]) -> Values:
        """Run a trial if it is not there yet, and return its figures.

        Args:
            trial: What to run.
            run: Returns the figures of one.
        """
        path = self.folder / _TRIALS / trial.file_name
        if not path.exists():
            claim_folder(self.folder, self.configuration)
            started = time.monotonic()
            values = run(trial)
            seconds = round(time.monotonic() - started, 1)
            write_json_durably(path, {**asdict(trial), "seconds": seconds, "values": values})
        kept: Values = read_json(path)["values"]
        return kept

    def read(self, first: Sequence[tuple[str, str]] = ()) -> Found:
        """Return the figures of all trials that are there.

        Args:
            first: Tasks and settings that come first, in this order; then the others, by name.
        """
        contents = [read_json(path) for path in sorted((self.folder / _TRIALS).glob("*.json"))]
        contents.sort(key=lambda content: int(content["seed"]))
        ranks = {name: rank for rank, name in enumerate(first)}
        names = {(content["task"], content["setting"]) for content in contents}
        found: dict[str, dict[str, dict[str, Estimate]]] = {}
        for task, setting in sorted(names, key=lambda name: (ranks.get(name, len(ranks)), name)):
            own = [c for c in contents if (c["task"], c["setting"]) == (task, setting)]
            seeds = tuple(int(content["seed"]) for content in own)
            found.setdefault(task, {})[setting] = {
                name: Estimate(tuple(content["values"][name] for content in own), seeds)
                for name in own[0]["values"]
            }
        return found


def found_to_json(found: Found) -> dict[str, Any]:
    """Return estimates as JSON has them."""
    return {
        task: {
            setting: {
                name: {
                    "mean": estimate.mean,
                    "standard_error": estimate.standard_error,
                    "values": list(estimate.values),
                    "seeds": list(estimate.seeds),
                }
                for name, estimate in estimates.items()
            }
            for setting, estimates in settings.items()
        }
        for task, settings in found.items()
    }


def estimate_record(estimate: Estimate) -> dict[str, float]:
    """Return an estimate in percent as a cell of a record's table."""
    error = estimate.standard_error
    cell = {"mean": 100 * estimate.mean, "digits": 2}
    return cell if error is None else cell | {"standard_error": 100 * error}


def settings_record(
    settings: Mapping[str, Mapping[str, Estimate]], columns: Sequence[str]
) -> dict[str, Any]:
    """Return a row a setting, with its number of seeds; null for what a setting lacks.

    Args:
        settings: Estimates by setting and name.
        columns: The figures shown.
    """
    rows = [
        [
            name,
            max(len(estimate.values) for estimate in estimates.values()),
            *(estimate_record(estimates[x]) if x in estimates else None for x in columns),
        ]
        for name, estimates in settings.items()
    ]
    return {"columns": [{"name": x} for x in ("setting", "seeds", *columns)], "rows": rows}


def error_or_nan(estimate: Estimate) -> float:
    """Return its standard error as plots want it: nan, which draws nothing, for a single seed."""
    error = estimate.standard_error
    return math.nan if error is None else error


def claim_folder(folder: Path, configuration: Mapping[str, Any]) -> None:
    """Note in a folder which experiment it holds."""
    check_own_folder(folder, CONFIGURATION_NAME, "--output")
    (folder / _TRIALS).mkdir(parents=True, exist_ok=True)
    claim(folder / CONFIGURATION_NAME, configuration, "experiment", "--output")
