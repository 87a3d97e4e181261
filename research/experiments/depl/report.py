"""What the ablations of DEPL say: tables, the paper's findings tested, and its Figures 1 and 4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from longtail.models.names import CLASSIFIER, ENSEMBLE, HYBRID, RETRIEVAL, SPARSE
from longtail.training.evaluation.by_frequency import FREQUENCY_BINS, ZERO_SHOT_BIN
from longtail.training.evaluation.figures import new_figure
from longtail.training.evaluation.plots import draw_f1_by_rank
from longtail.training.evaluation.tables import NOT_MEASURED, markdown_table
from research.experiments.depl.ablations import BASE, BY_NAME
from research.experiments.depl.claims import (
    OVERALL,
    ZERO_SHOT,
    judged_claims,
    verdict_here,
)
from research.experiments.depl.evidence import Arm, Evidence, Judged, JudgedPairs
from research.experiments.trials import Estimate, error_or_nan, settings_table

_METHODS = (
    (RETRIEVAL, SPARSE), (RETRIEVAL, CLASSIFIER), (HYBRID, RETRIEVAL), (HYBRID, CLASSIFIER),
    (ENSEMBLE, RETRIEVAL), (ENSEMBLE, SPARSE),
)  # fmt: skip
"""Scorers of the base that are compared, each with another one."""
_CHOICES = {
    "Tokens of a label text": ("name_only", "tokens_8", "tokens_16", "tokens_32"),
    "Keywords, uncut": ("name_only", "keywords_8", "keywords_16", "keywords_32"),
    "Label text in 32 tokens": ("tokens_32", "alternative_names", "parents", "names_and_parents"),
    "Hard negatives": ("hard_0", "hard_5", "hard_10"),
    "Loss beside the dual encoder's": (BASE, "no_classifier"),
}
"""Settings of which the report names the best."""
_TEXTS = (
    BASE, "name_only", "tokens_8", "tokens_16", "tokens_32", "keywords_8", "keywords_16",
    "keywords_32", "alternative_names", "parents", "names_and_parents",
)  # fmt: skip
_HOW_CORRECTED = (
    "No paper gave the direction of these comparisons, so p-values are two-sided. Both kinds of "
    "sentence are corrected for how many there are (Holm): the best of a choice as one of all "
    "pairs of all choices, the comparisons as all that stand below them."
)
_COLOURS = ("#0072B2", "#009E73", "#D55E00")


def ablation_markdown(evidence: Evidence, measured_on: str) -> str:
    """Return what the ablations say, and the tables behind it.

    Args:
        evidence: Figures and rankings.
        measured_on: What was trained and measured on, in words.
    """
    found, columns = evidence.found, _columns(evidence)
    by_bin = [f"macro-F1@{evidence.k} ({name})" for name in FREQUENCY_BINS if name != ZERO_SHOT_BIN]
    tables = {
        "Findings of Zhang et al. 2023": f"{_how_tested(evidence)}\n\n{_claim_table(evidence)}",
        f"`{RETRIEVAL}` by setting": (
            f"{_setting_list(evidence)}\n\n{settings_table(found[RETRIEVAL], columns)}"
        ),
        f"`{RETRIEVAL}` by training documents of the label": settings_table(
            found[RETRIEVAL], [*by_bin, ZERO_SHOT]
        ),
    }
    if _pairs(evidence):
        title = f"`{RETRIEVAL}` of each setting less that of another, in points"
        tables[title] = _difference_table(evidence)
    tables[f"Scorers of `{BASE}`"] = _method_table(evidence, [*columns, ZERO_SHOT])
    short = ["P@1", evidence.precision, f"PSP@{evidence.k}", evidence.tail_f1, ZERO_SHOT]
    tables |= {
        f"`{scorer}` by setting": settings_table(found[scorer], short)
        for scorer in (HYBRID, CLASSIFIER, ENSEMBLE)
        if len(found.get(scorer, {})) > 1
    }
    tables["Time"] = _time_table(evidence)
    heading = (
        f"# Ablations of DEPL\n\n{measured_on}\n\nIn percent, mean ± standard error over the seeds."
    )
    sections = [f"## {title}\n\n{table}" for title, table in tables.items()]
    return "\n\n".join([heading, _conclusions(evidence), *sections]) + "\n"


def _columns(evidence: Evidence) -> list[str]:
    return [*OVERALL, evidence.tail_f1]


def _how_tested(evidence: Evidence) -> str:
    return (
        f"{evidence.tail_f1} by the macro t-test on the labels with 1-9 training documents, "
        f"{evidence.precision} by the micro sign test on all decisions (Yang & Liu 1999); each p "
        "is one-sided, that the paper's finding holds, and the largest over the seeds. They are "
        "corrected for the number of rows by Holm's method; contrary is what a two-sided test "
        "says, corrected alike."
    )


def _claim_table(evidence: Evidence) -> str:
    rows = []
    for claim, judged in judged_claims(evidence):
        figure = claim.figure_of(evidence)
        pair = [_estimate_text(evidence.estimate(arm, figure))
                for arm in (claim.better, claim.other)]  # fmt: skip
        cells = (*pair, *_difference_cells(judged), verdict_here(judged))
        rows.append([claim.words, figure, *cells])
    header = ["finding", "by", "the better", "the other", "difference", "p", "corrected", "here"]
    return markdown_table(header, rows)


def _conclusions(evidence: Evidence) -> str:
    lines = [f"- {line}" for line in (*_best_of_choices(evidence), *_compared(evidence))]
    return "\n".join(["## What the ablations say\n", f"{_HOW_CORRECTED}\n", *lines])


def _best_of_choices(evidence: Evidence) -> Iterator[str]:
    """Tell which setting is best, for each choice of which at least two settings were run.

    The best is chosen for being best, so it is tested as one of all pairs of all choices.

    Yields:
        A sentence.
    """
    settings, figures = evidence.found[RETRIEVAL], (evidence.tail_f1, evidence.precision)
    there = {name: [each for each in some if each in settings] for name, some in _CHOICES.items()}
    judged = evidence.judged(
        [
            (Arm(RETRIEVAL, first), Arm(RETRIEVAL, second), figure)
            for some in there.values()
            for figure in figures
            for first, second in combinations(_from_best(evidence, some, figure), 2)
        ],
    )
    for name, some in there.items():
        if len(some) > 1:
            said = "; ".join(
                _best(evidence, ranked, figure, judged)
                for figure in figures
                if (ranked := _from_best(evidence, some, figure))
            )
            yield f"**{name}** ({', '.join(f'`{each}`' for each in some)}): {said}."


def _from_best(evidence: Evidence, settings: Sequence[str], figure: str) -> list[str]:
    """Return the settings that have a figure, the highest first."""
    means = {
        name: estimate.mean
        for name in settings
        if (estimate := evidence.estimate(Arm(RETRIEVAL, name), figure)) is not None
    }
    return sorted(means, key=lambda name: -means[name])


def _best(evidence: Evidence, ranked: Sequence[str], figure: str, judged: JudgedPairs) -> str:
    """Return which setting has the highest figure, and which others are surely below it."""
    best = Arm(RETRIEVAL, ranked[0])
    beaten = [
        f"`{name}`"
        for name in ranked[1:]
        if (found := judged.get((best, Arm(RETRIEVAL, name), figure))) and found.verdict == "better"
    ]
    than = ", ".join(beaten) if beaten else "none of the others"
    value = _estimate_text(evidence.estimate(best, figure)).split(" ")[0]
    return f"{figure} is best with `{ranked[0]}` ({value}), beyond chance better than {than}"


def _judged_comparisons(evidence: Evidence) -> JudgedPairs:
    """Return all that is compared: settings with the one that they name, scorers of the base."""
    arms = [(Arm(RETRIEVAL, setting), Arm(RETRIEVAL, other)) for setting, other in _pairs(evidence)]
    arms += [(Arm(scorer, BASE), Arm(other, BASE)) for scorer, other in _METHODS]
    return evidence.judged(
        [
            (*pair, figure)
            for pair in arms
            if all(map(evidence.has, pair))
            for figure in (evidence.tail_f1, evidence.precision)
        ],
    )


def _compared(evidence: Evidence) -> Iterator[str]:
    """Compare each setting with the one that it names, then scorers of the base.

    Yields:
        A sentence.
    """
    said: dict[tuple[Arm, Arm], list[str]] = {}
    for (first, second, figure), found in _judged_comparisons(evidence).items():
        subset = "rare" if figure == evidence.tail_f1 else "all"
        difference, p_value, corrected = _difference_cells(found)
        said.setdefault((first, second), []).append(
            f"{found.verdict} on {subset} labels ({figure} {difference}, p {p_value}, "
            f"corrected {corrected})"
        )
    for (first, second), parts in said.items():
        if first.scorer == second.scorer:
            what = f"`{first.setting}`, {BY_NAME[first.setting].what}, against `{second.setting}`"
        else:
            what = f"Scorer `{first.scorer}` against `{second.scorer}`"
        yield f"{what}: {'; '.join(parts)}."


def _pairs(evidence: Evidence) -> list[tuple[str, str]]:
    """Return the settings that were run for themselves, each with the one to compare it with."""
    settings = evidence.found[RETRIEVAL]
    pairs = []
    for name in evidence.seconds:
        other = BY_NAME[name].against
        if name != other:
            pairs.append((name, other if other in settings else BASE))
    return pairs


def _setting_list(evidence: Evidence) -> str:
    def described(name: str) -> str:
        twin = "" if name in evidence.seconds else "; another setting has this configuration"
        return f"- `{name}`: {BY_NAME[name].what}{twin}"

    return "\n".join(map(described, evidence.found[RETRIEVAL]))


def _difference_table(evidence: Evidence) -> str:
    judged, rows = _judged_comparisons(evidence), []
    for setting, other in _pairs(evidence):
        arms = Arm(RETRIEVAL, setting), Arm(RETRIEVAL, other)
        found = [evidence.difference(*arms, name) for name in _columns(evidence)]
        tested = [judged.get((*arms, name)) for name in (evidence.precision, evidence.tail_f1)]
        rows.append([
            setting, other,
            *(NOT_MEASURED if each is None else _signed(each.advantage) for each in found),
            *(NOT_MEASURED if each is None else _p_text(each.corrected) for each in tested),
        ])  # fmt: skip
    tests = [f"p, {name}, corrected" for name in (evidence.precision, evidence.tail_f1)]
    return markdown_table(["setting", "less", *_columns(evidence), *tests], rows)


def _method_table(evidence: Evidence, columns: Sequence[str]) -> str:
    scorers = {name: arms[BASE] for name, arms in evidence.found.items() if BASE in arms}
    return settings_table(scorers, columns).replace("| setting", "| scorer ", 1)


def _time_table(evidence: Evidence) -> str:
    rows = [
        [name, str(len(seconds.values)), f"{seconds.mean / 60:.1f}"]
        for name, seconds in evidence.seconds.items()
    ]
    note = (
        "Minutes of a run by the clock, mean over the seeds. What another setting had trained, the "
        "sparse model and the classifier, is not counted again: the first one has it. A setting "
        "that is missing has the configuration of another, whose figures it shows."
    )
    return f"{note}\n\n{markdown_table(['setting', 'seeds', 'minutes'], rows)}"


def _difference_cells(found: Judged) -> tuple[str, str, str]:
    return (
        _signed(found.difference.advantage),
        _p_text(found.p_value),
        _p_text(found.corrected),
    )


def _signed(estimate: Estimate) -> str:
    return ("+" if estimate.mean >= 0 else "") + str(estimate)


def _estimate_text(estimate: Estimate | None) -> str:
    return NOT_MEASURED if estimate is None else str(estimate)


def _p_text(p_value: float | None) -> str:
    if p_value is None:
        return NOT_MEASURED
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def draw_ablations(evidence: Evidence) -> Figure:
    """Draw the scorers by label rank (Figure 1), label texts (Figure 4), and all differences."""
    heights = (3, 2, 3) if _pairs(evidence) else (3, 2)
    figure = new_figure(10.0, 1.6 * sum(heights))
    ranks, texts, *differences = figure.subplots(len(heights), 1, height_ratios=heights)
    scorers = [Arm(scorer, BASE) for scorer in evidence.found]
    draw_f1_by_rank(
        ranks,
        {arm.scorer: evidence.label_f1(arm) for arm in scorers if evidence.has(arm)},
        evidence.training_counts,
        evidence.k,
    )
    ranks.legend(fontsize=8, loc="upper left")
    _draw_texts(texts, evidence)
    for axes in differences:
        _draw_differences(axes, evidence)
    return figure


def _draw_texts(axes: Axes, evidence: Evidence) -> None:
    arms = {name: Arm(RETRIEVAL, name) for name in _TEXTS}
    arms = {CLASSIFIER: Arm(CLASSIFIER, BASE), **arms, SPARSE: Arm(SPARSE, BASE)}
    shown = {
        name: estimate
        for name, arm in arms.items()
        if evidence.has(arm) and (estimate := evidence.estimate(arm, evidence.tail_f1))
    }
    axes.bar(
        range(len(shown)),
        [100 * estimate.mean for estimate in shown.values()],
        yerr=[100 * error_or_nan(estimate) for estimate in shown.values()],
        color=[_COLOURS[0] if arms[name].scorer == RETRIEVAL else "0.6" for name in shown],
        capsize=2,
    )
    axes.set_title(f"{RETRIEVAL} by label text, beside scorers that read none (grey)")
    axes.set_ylabel(f"{evidence.tail_f1} (%)")
    _name_bars(axes, shown)


def _draw_differences(axes: Axes, evidence: Evidence) -> None:
    pairs = _pairs(evidence)
    figures = (evidence.precision, f"PSP@{evidence.k}", evidence.tail_f1)
    width = 0.8 / len(figures)
    for index, (name, colour) in enumerate(zip(figures, _COLOURS, strict=True)):
        shown = {
            position: found.advantage
            for position, (setting, other) in enumerate(pairs)
            if (found := evidence.difference(Arm(RETRIEVAL, setting), Arm(RETRIEVAL, other), name))
        }
        axes.bar(
            [position + (index - 1) * width for position in shown],
            [100 * estimate.mean for estimate in shown.values()],
            width,
            yerr=[100 * error_or_nan(estimate) for estimate in shown.values()],
            label=name, color=colour, capsize=2,
        )  # fmt: skip
    axes.axhline(0, color="0.3", linewidth=0.8)
    axes.set_title(f"{RETRIEVAL} of each setting less that of another")
    axes.set_ylabel("difference (points of percent)")
    _name_bars(axes, [f"{setting}\n- {other}" for setting, other in pairs])
    axes.legend(fontsize=8)


def _name_bars(axes: Axes, names: Iterable[str]) -> None:
    kept = list(names)
    axes.set_xticks(range(len(kept)), kept, rotation=30, ha="right", fontsize=8)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
