"""The experiment of Reddi et al. 2019: the hardest of the sampled negatives against all of them.

The binary ordered loss with the hinge, as in section 5: `top_1` to `top_256` of B sampled labels,
and `plain` negative sampling, which is Top-B. Table 2 gives ratios to plain negative sampling.
Other losses, pairwise or with another phi, are tasks of their own beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from matplotlib.figure import Figure

from longtail.models.errors import ConfigError
from longtail.models.metrics import join_truth, precision_at, recall_at
from longtail.training.commands.options import JsonOption
from longtail.training.configuration.learning import LearningConfig
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.evaluation.plots import new_figure
from longtail.training.learning.objectives import SamplerInputs, make_objective
from longtail.training.runtime.distributed import forked_random
from research.experiments.bow_models import Learning, SphereModel, rank_documents, train_model
from research.experiments.data import ExperimentData, read_experiment_data, tuning_and_measured
from research.experiments.findings import Finding, findings_record, run_tests
from research.experiments.rates import RatedRun, rates_record, read_rates, run_with_rates
from research.experiments.runner import Experiment, Report, run_experiment
from research.experiments.trials import (
    Estimate,
    Found,
    Trial,
    TrialStore,
    Values,
    choose_settings,
    error_or_nan,
    ratio,
    settings_record,
)
from research.options import (
    CorpusArgument,
    EpochsOption,
    ExperimentOption,
    MeasuredSplitOption,
    RatesOption,
    SeedsOption,
    SettingsOption,
)

PLAIN = "plain"
HINGE = "binary hinge"
"""The loss of section 5: form and phi."""
LOSSES = tuple(
    f"{form} {phi}"
    for form in ("binary", "pairwise")
    for phi in ("hinge", "squared_hinge", "logistic_base_2", "exponential", "ramp")
)
_KS = (1, 3, 5)
_CURVE = (1 / 16, 1 / 4, 1, 4)
_FIGURES = tuple(f"{name}@{k}" for name in ("R", "P") for k in _KS)
_TUNED_BY = "R@5"
_COLOURS = {"top_1": "#D55E00", "top_16": "#0072B2", PLAIN: "#000000"}


@dataclass(frozen=True, slots=True)
class NegativeMiningPlan:
    """What every trial has in common.

    Attributes:
        epochs: Passes over the documents, each with one of its labels.
        num_sampled: B of Table 2; the curve has B / 16, B / 4, B and 4 B.
        ranks: k of Table 2; those below B are run.
        curve_ranks: k of the curve, beside plain negative sampling.
        batch_size: Documents a step; they share the sampled labels.
        width: Width of both layers and of the label vectors.
        learning_rates: Learning rates of `RowAdagrad`; of several, each setting has its best.
        losses: Form and phi of the ordered losses; the curve has the first.
        has_curve: Whether other B are run than that of Table 2.
    """

    epochs: int = 4
    num_sampled: int = 1024
    ranks: tuple[int, ...] = (1, 16, 64, 256)
    curve_ranks: tuple[int, ...] = (1, 16)
    batch_size: int = 256
    width: int = 512
    learning_rates: tuple[float, ...] = (0.02,)
    losses: tuple[str, ...] = (HINGE,)
    has_curve: bool = True

    @property
    def settings(self) -> tuple[str, ...]:
        """Names of the settings of Table 2."""
        return (*(_setting(k) for k in self.ranks if k < self.num_sampled), PLAIN)

    def trials(self, num_seeds: int, settings: Iterable[str], num_labels: int) -> list[Trial]:
        """Return the trials of some settings: Table 2 of a seed, then its part of the curve.

        Args:
            num_seeds: Seeds 0 to this number less one.
            settings: Names of those wanted.
            num_labels: L; the curve ends below it.
        """
        if self.num_sampled >= num_labels:
            raise ConfigError(
                f"negative mining: {self.num_sampled} labels are to be sampled, of {num_labels} "
                "that have training documents; lower --sampled"
            )
        table = [
            (_task(self.num_sampled, loss), name) for loss in self.losses for name in self.settings
        ]
        curve = [
            (_task(num_sampled, self.losses[0]), name)
            for num_sampled in (int(self.num_sampled * factor) for factor in _CURVE)
            if num_sampled < num_labels and self.has_curve
            for name in (*(_setting(k) for k in self.curve_ranks if k < num_sampled), PLAIN)
            if num_sampled
        ]
        chosen = set(settings)
        return [
            Trial(task, name, seed)
            for seed in range(num_seeds)
            for task, name in dict.fromkeys([*table, *curve])
            if name in chosen
        ]


def command(
    data: CorpusArgument,
    output: ExperimentOption = Path("runs/negative-mining"),
    seeds: SeedsOption = 3,
    epochs: EpochsOption = 4,
    sampled: Annotated[
        int, typer.Option(min=2, help="B, the labels sampled a step; fewer than there are.")
    ] = 1024,
    losses: Annotated[
        str,
        typer.Option(help=f"Forms and phi between commas, of {', '.join(LOSSES)}."),
    ] = HINGE,
    curve: Annotated[
        bool, typer.Option(help="Run B / 16, B / 4 and 4 B too, with the first loss.")
    ] = True,
    rates: RatesOption = None,
    settings: SettingsOption = None,
    split: MeasuredSplitOption = "dev",
    json_file: JsonOption = None,
) -> None:
    """Compare the hardest of the sampled negatives with all of them (Reddi et al. 2019)."""

    def make() -> Experiment:
        plan = NegativeMiningPlan(
            epochs=epochs, num_sampled=sampled, losses=read_losses(losses), has_curve=curve,
        )  # fmt: skip
        plan = plan if rates is None else replace(plan, learning_rates=read_rates(rates))
        return negative_mining(open_dataset(data), split, seeds, settings, plan)

    typer.echo(run_experiment(make, output, data=data, json_file=json_file))


def negative_mining(
    dataset: Dataset, split: str, num_seeds: int, settings: str | None, plan: NegativeMiningPlan
) -> Experiment:
    """Return the experiment.

    Args:
        dataset: The corpus.
        split: "dev" or "test".
        num_seeds: Seeds 0 to this number less one.
        settings: Names between commas; None for all.
        plan: How to train.
    """
    names = choose_settings(plan.settings, settings)

    def run(store: TrialStore, device: str) -> Found:
        data = read_experiment_data(dataset, split)
        trials = plan.trials(num_seeds, names, num_labels=len(data.counts))
        tuning, measured = tuning_and_measured(data, plan.learning_rates)
        rated = RatedRun(
            measure=lambda trial, rate: run_negative_mining(measured, plan, trial, rate, device),
            tune=lambda trial, rate: run_negative_mining(tuning, plan, trial, rate, device),
            merit=lambda _, values: values[_TUNED_BY],
        )
        return run_with_rates(store, trials, plan.learning_rates, rated)

    def report(found: Found) -> Report:
        return Report(negative_mining_record(found), draw_negative_mining(found))

    return Experiment("negative-mining", dataset, split, num_seeds, asdict(plan), run, report)


def read_losses(text: str) -> tuple[str, ...]:
    """Return the losses between the commas of an option, each once."""
    names = [" ".join(name.split()) for name in text.split(",")]
    if unknown := [name for name in names if name not in LOSSES]:
        raise ConfigError(
            f"--losses: got {', '.join(map(repr, unknown))}, expected some of {', '.join(LOSSES)}"
        )
    return tuple(dict.fromkeys(names))


def run_negative_mining(
    data: ExperimentData, plan: NegativeMiningPlan, trial: Trial, learning_rate: float, device: str
) -> Values:
    """Train one setting at one B, and return its figures.

    Args:
        data: The corpus.
        plan: How to train.
        trial: One of the plan's.
        learning_rate: Learning rate of `RowAdagrad`.
        device: Where to train.
    """
    config = learning_config(trial)
    num_labels = len(data.counts)
    learning = Learning(
        objective=make_objective(config, SamplerInputs(data.counts, device)),
        exclude="document",
        reduction="one",
        batch_size=plan.batch_size,
        epochs=plan.epochs,
        learning_rate=learning_rate,
    )
    with forked_random(trial.seed):
        model = SphereModel(data.train.features.shape[1], num_labels, plan.width).to(device)
    train_model(model, data.train, learning, trial.seed)
    joined = join_truth(
        rank_documents(model, data.measured.features, max(_KS)), data.measured.truth
    )
    measures = {"R": recall_at, "P": precision_at}
    return {f"{name}@{k}": measures[name](joined, k) for name in measures for k in _KS}


def learning_config(trial: Trial) -> LearningConfig:
    """Return B, k and loss of a trial; the labels of a document are none of its negatives.

    The k hardest cost their mean, as section 3.1 puts it in words: vartheta = 1 / k. Lemma 2's
    (K - 1) / (k B) is the same times a number, which here lets the negatives outweigh the positive
    as many times: cosines never reach the flat end of the hinge, and the vectors collapse.
    """
    num_sampled = _num_sampled(trial.task)
    rank = num_sampled if trial.setting == PLAIN else int(trial.setting.removeprefix("top_"))
    form, phi = (trial.task.partition(", ")[2] or HINGE).split()
    return LearningConfig.model_validate(
        {
            "negatives": {
                "distribution": {"kind": "uniform_subset"}, "num_negatives": num_sampled,
                "shared": True, "exclude": "document",
            },
            "loss": {
                "kind": "ordered", "margin_loss": phi, "form": form,
                "rank_weights": [1 / rank] * rank,
            },
        }
    )  # fmt: skip


def paper_findings(found: Found) -> list[Finding]:
    """Return what Reddi et al. 2019 found in section 5, for each B and k that was run."""
    return [
        Finding(f"Top-{name.removeprefix('top_')} beats plain", task, figure, name, (PLAIN,))
        for task in sorted(found, key=_num_sampled)
        for name in found[task]
        if name != PLAIN
        for figure in _FIGURES[: len(_KS)]
    ]


def negative_mining_record(found: Found) -> dict[str, Any]:
    """Return findings, figures and ratios of every task as tables of a record."""
    ratios = [
        [
            task,
            name,
            len(settings[name][_TUNED_BY].values),
            *(_ratio_cell(settings[name][x], settings[PLAIN][x]) for x in _FIGURES),
        ]
        for task, settings in sorted(found.items(), key=lambda item: _num_sampled(item[0]))
        if PLAIN in settings
        for name in settings
        if name != PLAIN
    ]
    columns = [{"name": name} for name in ("task", "setting", "seeds", *_FIGURES)]
    return {
        "findings": findings_record(run_tests(found, paper_findings(found))),
        "tables": {task: settings_record(settings, _FIGURES) for task, settings in found.items()},
        "ratios": {"columns": columns, "rows": ratios},
        "rates": rates_record(found),
    }


def _ratio_cell(above: Estimate, below: Estimate) -> dict[str, float] | None:
    value, error = ratio(above, below)
    if not math.isfinite(value):
        return None
    return {"mean": value, "digits": 2} | ({} if error is None else {"standard_error": error})


def draw_negative_mining(found: Found) -> Figure:
    """Draw R@5 and P@1 over B: the hardest, the 16 hardest, and all."""
    figure = new_figure(11.0, 4.5)
    for axes, column in zip(figure.subplots(1, 2), ("R@5", "P@1"), strict=True):
        for name, colour in _COLOURS.items():
            shown = {
                _num_sampled(task): settings[name][column]
                for task, settings in found.items()
                if name in settings and "," not in task
            }
            sizes = sorted(shown)
            axes.errorbar(
                sizes,
                [100 * shown[size].mean for size in sizes],
                yerr=[100 * error_or_nan(shown[size]) for size in sizes],
                label=name, color=colour, marker="o", capsize=2,
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_xlabel("sampled labels B")
        axes.set_ylabel(f"{column} (%)")
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def _setting(rank: int) -> str:
    return f"top_{rank}"


def _task(num_sampled: int, loss: str = HINGE) -> str:
    return f"B={num_sampled}" + ("" if loss == HINGE else f", {loss}")


def _num_sampled(task: str) -> int:
    return int(task.partition(",")[0].removeprefix("B="))
