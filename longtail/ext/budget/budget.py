"""Training within a given time: first all that needs no encoder, then what time is left for.

Two runs, each published: the second takes over what the first trained, and its stages are as long
as the time that is left allows. How long is measured once, and written down with the run.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.models.bundle.registry import Registry
from longtail.models.errors import ConfigError
from longtail.models.extras import require
from longtail.models.files.durable import read_json, write_json_durably
from longtail.models.kinds.storage import read_parts
from longtail.models.names import SPARSE
from longtail.training.configuration.run import TrainingConfig
from longtail.training.evaluation.by_frequency import ALL_LABELS
from longtail.training.pipeline.dev_split import CHOICE_METRICS
from longtail.training.pipeline.fittings import FITTINGS
from longtail.training.pipeline.train import Run, check_run, train, with_dev_split
from longtail.training.runtime.kept import claim, folder_of_run
from longtail.training.runtime.run_log import OutOfTimeError, read_stage_costs, until

if TYPE_CHECKING:
    from longtail.ext.budget.dense_costs import DenseCosts

logger = logging.getLogger(__name__)

BUDGET_NAME = "budget.json"
_PLAN_NAME = "plan.json"
_WITHOUT, _WITH = "without-encoder", "with-encoder"
_ON_DEV = ("probabilities", "dev metrics")
_MORE_ON_DEV = 2.5
"""Times that the dev split takes with the scorers of an encoder, beside its vectors."""
_RESERVE = 0.05
"""Share of the time that is left for what can't be foreseen."""
_FEWEST_STEPS = 50
"""Fewest steps of the dual encoder; with fewer it is not worth its time."""


@dataclass(frozen=True, slots=True)
class DensePlan:
    """How long the stages of the dense half are to be.

    Attributes:
        max_steps: By stage; none of a stage that is left out. None: all of the configuration.
        seconds: What the second run is expected to take.
    """

    max_steps: Mapping[str, int] | None
    seconds: float

    @property
    def in_words(self) -> str:
        """How long the encoder is trained, and what that takes."""
        length = "in full"
        if self.max_steps is not None:
            steps = [f"{count} steps of {name}" for name, count in self.max_steps.items() if count]
            length = f"for {' and '.join(steps)}"
        return f"The encoder is used {length}: about {self.seconds / 60:.1f} min are left."

    def applied(self, config: TrainingConfig) -> TrainingConfig:
        """Return the configuration with stages of this length."""
        if self.max_steps is None:
            return config
        changed: dict[str, Any] = {}
        for name, steps in self.max_steps.items():
            update = {"max_steps": steps} if steps else {"epochs": 0}
            changed[name] = getattr(config, name).model_copy(update=update)
        return config.model_copy(update=changed)


def plan_dense(costs: DenseCosts, other_s: float, left_s: float) -> DensePlan | None:
    """Return how long the stages may be, all by the same share; None if that is too short.

    Args:
        costs: Of the dense half.
        other_s: Seconds of the second run beside it.
        left_s: Seconds that are left.
    """
    fixed = costs.other_s + other_s
    whole = sum(stage.seconds for stage in costs.stages.values())
    free = left_s * (1 - _RESERVE) - fixed
    if free >= whole:
        return DensePlan(None, fixed + whole)
    steps = {
        name: int(max(0.0, free) / whole * x.steps) for name, x in costs.stages.items() if whole
    }
    if steps.get("retrieval", 0) < _FEWEST_STEPS:  # none at all where nothing is fine-tuned
        return None
    taken = sum(count * costs.stages[name].step_s for name, count in steps.items())
    return DensePlan(steps, fixed + taken)


def train_within(
    run: Run,
    registry: Registry,
    seconds: float | int,
    tell: Callable[[str], object] = logger.info,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Train and publish the best that a time allows, and return the version that is to be used.

    First a model without an encoder, which is trained to its end in any case; then, if the time
    that is left is worth it, one with the encoder. The registry's `current` names the second only
    if it is better on the dev split.

    Args:
        run: What to train, with an encoder, in one process. Started again on its folder, it
            resumes.
        registry: Where to publish.
        seconds: That both may take together, counted from now.
        tell: Called with what is published, and how long the rest takes.
        clock: Seconds of a clock.
    """
    begun = clock()
    _check(run)
    run = check_run(run, registry)
    note = {"budget_s": seconds, **_said(run)}
    run = replace(run, folder=folder_of_run(run.folder, BUDGET_NAME, note))
    run.folder.mkdir(parents=True, exist_ok=True)
    claim(run.folder / BUDGET_NAME, note, "run", "--work")
    first = replace(run, config=run.config.without_encoder, folder=run.folder / _WITHOUT)
    version = train(first, registry)
    tell(f"Version {version}, without an encoder, is published after {clock() - begun:.0f} s.")

    def left() -> float:
        return seconds - (clock() - begun)

    plan = _kept_plan(run.folder / _PLAN_NAME, lambda: _plan(run, registry, version, left))
    if plan is None:
        return version
    tell(plan.in_words)
    _take_over(run.folder)
    second = replace(
        run, config=plan.applied(run.config), folder=run.folder / _WITH, is_activated=False
    )
    try:
        with until(lambda: left() < 0):
            with_encoder = train(second, registry)
    except OutOfTimeError:
        logger.warning(
            "the %.0f s of the budget are over before the encoder's run is: version %d is without "
            "one; the same command with --work %r resumes, with as much time again",
            seconds, version, str(run.folder),
        )  # fmt: skip
        return version
    tell(f"{clock() - begun:.0f} s of {seconds:.0f} s were taken.")
    return _better(registry, version, with_encoder, activate=run.is_activated)


def _check(run: Run) -> None:
    if not run.config.is_dense:
        raise ConfigError(
            "--budget decides how long the encoder is trained, but this run has none; leave it out"
        )
    require("cpu", "--budget: training an encoder")
    if run.processes is not None and run.processes.count > 1:
        raise ConfigError("--budget: trains in one process; leave it out, or start one alone")


def _said(run: Run) -> dict[str, Any]:
    return {
        "config": run.config.settings_used,
        "data_fingerprint": run.dataset.fingerprint,
        "corpus": run.dataset.options.to_json(),
    }


def _plan(
    run: Run, registry: Registry, version: int, left: Callable[[], float]
) -> DensePlan | None:
    spent = {each.stage: each.wall_s for each in read_stage_costs(run.folder / _WITHOUT)}
    again = [x for x in _stages() if not (run.folder / _WITHOUT / x).is_dir()]
    other = sum(spent.get(name, 0.0) for name in (*again, "bundle"))
    other += _MORE_ON_DEV * sum(spent.get(name, 0.0) for name in _ON_DEV)
    plan = None
    if left() > other:
        from longtail.ext.budget.dense_costs import measure_dense_costs

        parts = read_parts(registry.open(version))
        try:
            with until(lambda: left() <= other):
                costs = measure_dense_costs(
                    run.config, with_dev_split(run), parts, lambda: left() - other
                )
            plan = plan_dense(costs, other, left())
        except OutOfTimeError:
            plan = None
    if plan is None:
        logger.warning(
            "%.0f s are left of the budget, which is too little to train the encoder: version %d "
            "is without one; give more time to have one",
            max(0.0, left()), version,
        )  # fmt: skip
    return plan


def _kept_plan(path: Path, make: Callable[[], DensePlan | None]) -> DensePlan | None:
    """Return the plan that lies in a file, or make it and keep it there."""
    if not path.exists():
        plan = make()
        write_json_durably(path, None if plan is None else asdict(plan))
    found = read_json(path)
    return None if found is None else DensePlan(**found)


def _stages() -> list[str]:
    """Return the stages of both runs; what one keeps in a folder, the second run takes over."""
    return [
        f"{name}{suffix}" for name in ("features", SPARSE, *FITTINGS) for suffix in ("", "-all")
    ]


def _take_over(folder: Path) -> None:
    for name in _stages():
        found, place = folder / _WITHOUT / name, folder / _WITH / name
        if found.is_dir() and not place.exists():
            partial = place.with_name(f".{name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(found, partial)
            partial.rename(place)


def _better(registry: Registry, without: int, with_encoder: int, *, activate: bool) -> int:
    """Return the version that is better on dev, and let `current` name it if it may.

    Without a dev split, which only a tiny corpus lacks, it is the one with the encoder.
    """
    values = [_on_dev(registry, version) for version in (without, with_encoder)]
    is_better = None in values or values[1] >= values[0]  # type: ignore[operator]
    if not is_better:
        logger.warning(
            "version %d, with the encoder, has %.2f %% on dev, and version %d, without, %.2f %%: "
            "it was trained too short; the one without is kept",
            with_encoder, 100 * (values[1] or 0), without, 100 * (values[0] or 0),
        )  # fmt: skip
        return without
    if activate:
        registry.activate(with_encoder, action="train")
    return with_encoder


def _on_dev(registry: Registry, version: int) -> float | None:
    """Return what a version's default scorer reaches on dev; None where nothing was measured."""
    manifest = registry.open(version).manifest
    if "dev" not in manifest.metrics:
        return None
    values = manifest.metrics["dev"][manifest.default_scorer][ALL_LABELS]
    return float(next(values[name] for name in CHOICE_METRICS if name in values))
