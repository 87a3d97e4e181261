"""A learning rate for each setting of an experiment, chosen on documents that no figure is of.

One rate for all settings favours those that it happens to suit. With several rates, each setting of
each task is trained with every one of them and seed 0; the best on the documents to tune on is the
rate of all its seeds. With a single rate nothing is chosen, and all measured documents count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from longtail.models.errors import ConfigError
from research.experiments.trials import Found, Trial, TrialStore, Values

RATE = "learning rate"
"""The figure of a trial that tells which rate was chosen."""

_FOLDER = "rates"


@dataclass(frozen=True, slots=True)
class RatedRun:
    """How a trial is trained with a rate and measured.

    Attributes:
        measure: Returns the figures of a trial with a rate, on all measured documents or their half
            that figures are of.
        tune: The same on the half to tune on.
        merit: What is best where it is highest, of a task's figures.
    """

    measure: Callable[[Trial, float], Values]
    tune: Callable[[Trial, float], Values]
    merit: Callable[[Trial, Values], float]


def run_with_rates(
    store: TrialStore, trials: Sequence[Trial], rates: Sequence[float], run: RatedRun
) -> Found:
    """Run the trials that the store lacks, each with the rate of its setting.

    Args:
        store: Where trials are kept; those of the search are in a folder in its folder.
        trials: In the order of the report.
        rates: To choose from; a single one is taken as it is.
        run: How.

    Returns:
        The figures of all trials of the store; where rates were chosen, `RATE` is one of them.
    """
    searched = TrialStore(store.folder / _FOLDER, store.configuration)

    def rate_of(trial: Trial) -> float:
        def merit_of(rate: float) -> float:
            named = Trial(trial.task, f"{trial.setting} at {rate:g}", 0)
            found = searched.keep(named, lambda _: run.tune(replace(trial, seed=0), rate))
            return run.merit(trial, found)

        return max(rates, key=merit_of)

    def measured(trial: Trial) -> Values:
        if len(rates) == 1:
            return run.measure(trial, rates[0])
        rate = rate_of(trial)
        return run.measure(trial, rate) | {RATE: rate}

    return store.run(trials, measured)


def read_rates(text: str) -> tuple[float, ...]:
    """Return the rates between the commas of an option, rising."""
    names = [name.strip() for name in text.split(",")]
    try:
        rates = sorted(float(name) for name in names)
    except ValueError:
        rates = [0.0]
    if not 0 < rates[0] <= rates[-1] < float("inf") or len(set(rates)) < len(rates):
        raise ConfigError(
            f"--rates: got {text!r}, expected different numbers above 0 between commas"
        )
    return tuple(rates)


def rates_record(found: Found) -> Mapping[str, Mapping[str, float]]:
    """Return the rates chosen, by task and setting; empty where none was chosen."""
    return {
        task: {
            setting: figures[RATE].mean for setting, figures in settings.items() if RATE in figures
        }
        for task, settings in found.items()
        if any(RATE in figures for figures in settings.values())
    }
