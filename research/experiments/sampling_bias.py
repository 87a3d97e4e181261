"""The experiment of Rawat et al. 2021: which labels a sampling distribution and a weight favour.

Three tasks: `retrieval` is the corpus itself, by the multi-label reduction (section 5.2); `EXP` and
`STEP` are multi-class problems with a long tail made from it (section 5.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
import typer
from jaxtyping import Int64
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from longtail.models.errors import ConfigError
from longtail.models.metrics import (
    RankedEvaluation,
    inverse_propensities,
    join_truth,
    precision_at,
    propensity_scored_precision_at,
)
from longtail.training.commands.options import JsonOption
from longtail.training.configuration.learning import LearningConfig
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.evaluation.plots import new_figure
from longtail.training.learning.objectives import SamplerInputs, make_objective
from longtail.training.runtime.distributed import forked_random
from research.experiments.bow_models import (
    CosineModel,
    HiddenLayerModel,
    Learning,
    rank_documents,
    train_model,
)
from research.experiments.data import (
    ExperimentData,
    read_experiment_data,
    thirds,
    tuning_and_measured,
)
from research.experiments.findings import Finding, findings_record, run_tests
from research.experiments.long_tail_profiles import (
    Profile,
    ProfileShape,
    balanced_errors,
    make_profile,
)
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

RETRIEVAL = "retrieval"
TASKS = (RETRIEVAL, *get_args(Profile))
RECALL_KS = (1, 10, 50)
SLICE_COLOURS = {"Head": "#0072B2", "Torso": "#009E73", "Tail": "#D55E00", "Full": "#000000"}
Loss = Literal["softmax", "cosine_contrastive"]
_RATES: Mapping[Loss, float] = {"softmax": 0.1, "cosine_contrastive": 0.02}
_TUNED_BY = {RETRIEVAL: "R@10 Full"} | dict.fromkeys(get_args(Profile), "error Full")
_NEGATIVES = 256
_PRECISION_KS = (1, 3, 5)
_RECALLS = tuple(f"R@{k}" for k in RECALL_KS)
_DISTRIBUTIONS: Mapping[str, Mapping[str, Any]] = {
    "uniform": {"kind": "uniform"},
    "within_batch": {"kind": "within_batch"},
    "frequency": {"kind": "frequency", "exponent": 0.5},
}
_WEIGHTS = ("constant", "importance", "relative", "tail")
_FULL = {"full_softmax": "importance", "logit_adjustment": "tail"}
"""Settings over all labels, and the weight that makes each of them."""
SETTINGS = (*(f"{q}-{w}" for q in _DISTRIBUTIONS for w in _WEIGHTS), *_FULL)
_TABLE_1 = tuple(f"{q}-{w}" for q in ("uniform", "within_batch") for w in _WEIGHTS[:3])


@dataclass(frozen=True, slots=True)
class SamplingBiasPlan:
    """What every trial has in common.

    Attributes:
        epochs: Passes over the pairs of the corpus.
        profile_epochs: Passes over the documents of a profile.
        num_negatives: m for the corpus; a batch has one pair more, so that all have as many. None:
            256, or one less than the labels where those are fewer.
        num_profile_negatives: m for a profile, or one less than its classes where those are fewer.
        width: Width of the hidden layer.
        learning_rates: Learning rates of `RowAdagrad`; of several, each setting has its best.
            Empty: that of the loss, the same for all.
        loss: The softmax, or the contrastive loss of cosines.
        tasks: Those to run, some of `TASKS`.
    """

    epochs: int = 2
    profile_epochs: int = 10
    num_negatives: int | None = None
    num_profile_negatives: int = 32
    width: int = 512
    learning_rates: tuple[float, ...] = ()
    loss: Loss = "softmax"
    tasks: tuple[str, ...] = TASKS

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates; by default one that suits the loss, found in short runs."""
        return self.learning_rates or (_RATES[self.loss],)


def command(
    data: CorpusArgument,
    output: ExperimentOption = Path("runs/sampling-bias"),
    seeds: SeedsOption = 3,
    epochs: EpochsOption = 2,
    negatives: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="m of the corpus, an eighth of it of a profile; a step has m + 1 pairs, so that "
            "more are fewer steps. By default 256, or as many as there are.",
        ),
    ] = None,
    loss: Annotated[Loss, typer.Option(help="Of pairs and their negatives.")] = "softmax",
    tasks: Annotated[
        str | None, typer.Option(help=f"Of {', '.join(TASKS)}, between commas; all by default.")
    ] = None,
    rates: RatesOption = None,
    settings: SettingsOption = None,
    split: MeasuredSplitOption = "dev",
    json_file: JsonOption = None,
) -> None:
    """Compare sampling distributions and weights on head and tail (Rawat et al. 2021)."""

    def make() -> Experiment:
        plan = SamplingBiasPlan(
            epochs=epochs, num_negatives=negatives, loss=loss,
            num_profile_negatives=max(1, (negatives or _NEGATIVES) // 8),
            tasks=tuple(choose_settings(TASKS, tasks, "--tasks")),
        )  # fmt: skip
        plan = plan if rates is None else replace(plan, learning_rates=read_rates(rates))
        return sampling_bias(open_dataset(data), split, seeds, settings, plan)

    typer.echo(run_experiment(make, output, data=data, json_file=json_file))


def sampling_bias(
    dataset: Dataset, split: str, num_seeds: int, settings: str | None, plan: SamplingBiasPlan
) -> Experiment:
    """Return the experiment.

    Args:
        dataset: The corpus.
        split: "dev" or "test".
        num_seeds: Seeds 0 to this number less one.
        settings: Names between commas; None for all.
        plan: How to train.
    """
    names = choose_settings(SETTINGS, settings)

    def run(store: TrialStore, device: str) -> Found:
        data = read_experiment_data(dataset, split)
        if RETRIEVAL in plan.tasks and (plan.num_negatives or 0) >= len(data.counts):
            raise ConfigError(
                f"--negatives: got {plan.num_negatives}, of {len(data.counts)} labels that have "
                "training documents; expected fewer than all"
            )
        tuning, measured = tuning_and_measured(data, plan.rates)
        rated = RatedRun(
            measure=lambda trial, rate: run_sampling_bias(measured, plan, trial, rate, device),
            tune=lambda trial, rate: run_sampling_bias(tuning, plan, trial, rate, device),
            merit=_merit,
        )
        trials = [
            Trial(task, name, seed)
            for seed in range(num_seeds)
            for task in plan.tasks
            for name in names
        ]
        return run_with_rates(store, trials, plan.rates, rated)

    def report(found: Found) -> Report:
        return Report(sampling_bias_record(found), draw_sampling_bias(found))

    return Experiment("sampling-bias", dataset, split, num_seeds, asdict(plan), run, report)


def _merit(trial: Trial, values: Values) -> float:
    value = values[_TUNED_BY[trial.task]]
    return value if trial.task == RETRIEVAL else -value


def learning_config(setting: str, num_negatives: int, loss: Loss = "softmax") -> LearningConfig:
    """Return q, w and loss of a setting: the positive alone is no negative, as in the paper.

    Args:
        setting: One of `SETTINGS`.
        num_negatives: m where q does not settle it; drawn once for a batch.
        loss: Loss of a pair and its negatives. The contrastive one is the decoupled loss with
            phi(z) = (1 - z)^2 and varphi(z) = max(z, 0)^2 of cosines, margin 0 (section 5.1).
    """
    negatives: dict[str, Any] = {"exclude": "positive"}
    if setting in _FULL:
        negatives |= {"distribution": {"kind": "all"}, "weighting": _FULL[setting]}
    else:
        distribution, _, weight = setting.partition("-")
        negatives |= {"distribution": _DISTRIBUTIONS[distribution], "weighting": weight}
        if distribution != "within_batch":
            negatives |= {"num_negatives": num_negatives, "shared": True}
    of_pair = {"kind": "softmax"} if loss == "softmax" else {"kind": "decoupled", "part": loss}
    return LearningConfig.model_validate({"negatives": negatives, "loss": of_pair})


def run_sampling_bias(
    data: ExperimentData, plan: SamplingBiasPlan, trial: Trial, learning_rate: float, device: str
) -> Values:
    """Train one setting on one task, and return its figures.

    Args:
        data: The corpus.
        plan: How to train.
        trial: Its task is one of `TASKS`, its setting one of `SETTINGS`.
        learning_rate: Learning rate of `RowAdagrad`.
        device: Where to train.
    """
    train_and_rank = partial(
        _train_and_rank, trial=trial, learning_rate=learning_rate, device=device
    )
    if trial.task == RETRIEVAL:
        return _retrieval_figures(train_and_rank(data, plan, k=max(RECALL_KS)), data)
    shape = ProfileShape("EXP" if trial.task == "EXP" else "STEP")
    problem = make_profile(data, shape, np.random.default_rng(trial.seed))
    of_profile = replace(plan, epochs=plan.profile_epochs, num_negatives=plan.num_profile_negatives)
    best = train_and_rank(problem, of_profile, k=1)[:, 0]
    return {f"error {name}": error for name, error in balanced_errors(best, problem).items()}


def _train_and_rank(
    data: ExperimentData,
    plan: SamplingBiasPlan,
    *,
    trial: Trial,
    learning_rate: float,
    k: int,
    device: str,
) -> Int64[np.ndarray, "document k"]:
    num_labels = len(data.counts)
    num_negatives = min(plan.num_negatives or _NEGATIVES, num_labels - 1)
    config = learning_config(trial.setting, num_negatives, plan.loss)
    learning = Learning(
        objective=make_objective(config, SamplerInputs(data.counts, device)),
        exclude="positive",
        reduction="documents" if trial.setting in _FULL else "pairs",
        batch_size=num_negatives + 1,
        epochs=plan.epochs,
        learning_rate=learning_rate,
    )
    with forked_random(trial.seed):
        kind = HiddenLayerModel if plan.loss == "softmax" else CosineModel
        model = kind(data.train.features.shape[1], num_labels, plan.width).to(device)
    train_model(model, data.train, learning, trial.seed)
    return rank_documents(model, data.measured.features, k)


def _retrieval_figures(ranked: Int64[np.ndarray, "document k"], data: ExperimentData) -> Values:
    joined = join_truth(ranked, data.measured.truth)
    values = {
        f"R@{k} {name}": pair_recall_at(joined.restricted_to(is_in), k)
        for k in RECALL_KS
        for name, is_in in thirds(data.counts).items()
        if is_in.any()
    }
    weights = inverse_propensities(data.counts, data.train.truth.shape[0])
    for k in _PRECISION_KS:
        values[f"P@{k}"] = precision_at(joined, k)
    for k in _PRECISION_KS:
        values[f"PSP@{k}"] = propensity_scored_precision_at(joined, k, weights)
    return values


def pair_recall_at(joined: RankedEvaluation, k: int) -> float:
    """Return the share of (document, label) pairs whose label is among the first k; 0 of none.

    Recall on the multi-class version of the corpus, in which each pair is an example.
    """
    _, is_hit = joined.top(k)
    return float(is_hit.sum() / max(1, len(joined.true_labels)))


def paper_findings() -> list[Finding]:
    """Return what Rawat et al. 2021 found in section 5, for each task and each of its figures.

    That relative weights favour Head is said of within-batch draws alone (Table 2).
    """
    sampled = tuple(name for name in SETTINGS if name not in _FULL)
    claims = [
        (
            "within-batch with constant weights is best of Table 1", "Tail",
            "within_batch-constant", _TABLE_1,
        ),
        ('"tail" weights beat all sampled schemes', "Tail", "within_batch-tail", sampled),
        ("logit adjustment beats softmax", "Tail", "logit_adjustment", ("full_softmax",)),
        (
            "relative weights are best, within_batch", "Head", "within_batch-relative",
            tuple(f"within_batch-{weight}" for weight in _WEIGHTS),
        ),
    ]  # fmt: skip
    for q in _DISTRIBUTIONS:
        schemes = tuple(f"{q}-{w}" for w in _WEIGHTS)
        claims.append((f'"tail" weights are best, {q}', "Tail", f"{q}-tail", schemes))
    return [
        Finding(
            f"{claim} on {third}", task, f"{figure} {third}", better,
            tuple(name for name in others if name != better),
            lower_is_better=task != RETRIEVAL,
        )
        for claim, third, better, others in claims
        for task in TASKS
        for figure in (_RECALLS if task == RETRIEVAL else ("error",))
    ]  # fmt: skip


def sampling_bias_record(found: Found) -> dict[str, Any]:
    """Return findings and figures of every task as tables of a record."""
    return {
        "findings": findings_record(run_tests(found, paper_findings())),
        "tables": {
            task: settings_record(settings, list(next(iter(settings.values()))))
            for task, settings in found.items()
        },
        "rates": rates_record(found),
    }


def draw_sampling_bias(found: Found) -> Figure:
    """Draw recall by k (Figure 2) and balanced errors (Figure 1), a bar for each third."""
    panels = []
    for task in (task for task in TASKS if task in found):
        if task == RETRIEVAL:
            panels += [(task, f"R@{k}", f"Recall@{k} of pairs (%)") for k in RECALL_KS]
        else:
            panels.append((task, "error", f"balanced error, {task} profile (%)"))
    figure = new_figure(11.0, 3.2 * len(panels))
    for axes, (task, prefix, title) in zip(
        figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels, strict=True
    ):
        _draw_slices(axes, found[task], prefix)
        axes.set_ylabel(title)
    return figure


def _draw_slices(axes: Axes, settings: Mapping[str, Mapping[str, Estimate]], prefix: str) -> None:
    names = list(settings)
    width = 0.8 / len(SLICE_COLOURS)
    for index, (name, colour) in enumerate(SLICE_COLOURS.items()):
        column = f"{prefix} {name}"
        shown_at = [position for position, each in enumerate(names) if column in settings[each]]
        if not shown_at:  # a STEP profile has no Torso
            continue
        shown: Sequence[Estimate] = [settings[names[position]][column] for position in shown_at]
        axes.bar(
            [position + (index - 1.5) * width for position in shown_at],
            [100 * estimate.mean for estimate in shown],
            width,
            yerr=[100 * error_or_nan(estimate) for estimate in shown],
            label=name, color=colour, capsize=2,
        )  # fmt: skip
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(ncols=len(SLICE_COLOURS), fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))
