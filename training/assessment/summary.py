"""What an evaluation says, in sentences and one short table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from longtail.training.calibration.thresholds import ThresholdF1
from longtail.training.data.languages import name_of
from longtail.training.evaluation.by_frequency import (
    ALL_LABELS,
    ZERO_SHOT_BIN,
    Evaluation,
    SubsetMetrics,
)
from longtail.training.evaluation.tables import NOT_MEASURED, Cells, markdown_table, number_if_few

_ONCE_BIN = "1"
_FEW = 5
_MAX_ROWS = 8
_NUMBERS = {1: "one", 3: "three", 5: "five", 10: "ten"}


@dataclass(frozen=True, slots=True)
class Summary:
    """How good a model is, for a reader who looks at nothing else.

    Attributes:
        sentences: Each states figures of the evaluation.
        cells: Heading and rows of a table of at most eight scorers and baselines; in percent.
        num_left_out: Rows of the whole table that this one lacks.
    """

    sentences: tuple[str, ...]
    cells: Cells
    num_left_out: int

    @property
    def text(self) -> str:
        """The sentences, one a line."""
        return "\n".join(self.sentences)

    @property
    def table(self) -> str:
        """`cells` as markdown."""
        return markdown_table(*self.cells)


def summarise(
    evaluation: Evaluation,
    scorers: Iterable[str],
    default: str,
    reason: str,
    thresholds: Mapping[str, ThresholdF1] | None = None,
    more: Iterable[str] = (),
    languages: Mapping[str, Evaluation] = MappingProxyType({}),
) -> Summary:
    """Return what the metrics of a model's scorers and of baselines say.

    Args:
        evaluation: Each row has the name of a scorer or a baseline, a scorer's also with ", " and
            how it was ranked behind.
        scorers: All scorers of the model.
        default: The one that answers where none is named.
        reason: Why it is this one, as a clause (see `Manifest.default_scorer_reason`).
        thresholds: By the name of a scorer, what its threshold is worth on these documents.
        more: Sentences about fitted parts.
        languages: Metrics by language of the document.
    """
    known, rows = set(scorers), evaluation.scorers
    few, many = max(k for k in evaluation.ks if k <= _FEW), evaluation.ks[-1]
    best = f"P@{few}"
    own = [row for row in rows if _scorer(row) in known and ", uncorrected" not in row]
    own.sort(key=lambda row: -_value(rows[row][ALL_LABELS], best))
    asked = next((row for row in own if _scorer(row) == default), own[0])
    found = rows[asked]
    sentences = [
        _few_sentence(asked, found[ALL_LABELS], few),
        _rare_sentence(found, many),
        _threshold_sentence((thresholds or {}).get(asked), found[ALL_LABELS].num_occurrences),
        _default_sentence(asked, own, best, reason, evaluation)
        if _scorer(asked) == default
        else "",
        _language_sentence(asked, languages),
        *more,
    ]
    baselines = [row for row in rows if _scorer(row) not in known]
    others = [row for row in own if row != asked]
    shown = [asked, *others[: max(0, _MAX_ROWS - 1 - len(baselines))], *baselines][:_MAX_ROWS]
    return Summary(
        tuple(filter(None, sentences)), _cells(evaluation, shown, few), len(rows) - len(shown)
    )


def _scorer(row: str) -> str:
    return row.split(",")[0]


def _value(subset: SubsetMetrics, metric: str) -> float:
    return subset.values.get(metric, 0.0)


def _few_sentence(asked: str, found: SubsetMetrics, k: int) -> str:
    right = k * _value(found, f"P@{k}")
    carried = found.num_occurrences / max(found.num_documents, 1)
    return (
        f"Of {_NUMBERS[k]} label{'s' * (k > 1)} suggested by {asked}, {right:.1f} are right; a "
        f"document carries {carried:.1f}."
    )


def _rare_sentence(found: Mapping[str, SubsetMetrics], k: int) -> str:
    """Return which share of the labels is found, overall and of those rarely or never seen."""
    names = {
        ALL_LABELS: "a document's labels",
        _ONCE_BIN: "labels seen once in training",
        ZERO_SHOT_BIN: "labels never seen in training",
    }
    shares = [
        f"{100 * found[subset].values[f'R@{k}']:.0f} % of {name}"
        f"{number_if_few(found[subset].num_documents)}"
        for subset, name in names.items()
        if found[subset].values
    ]
    *first, last = shares or [""]
    joined = f"{', '.join(first)} and {last}" if first else last
    return f"The first {_NUMBERS[k]} hold {joined}." if shares else ""


def _threshold_sentence(found: ThresholdF1 | None, num_labels: int) -> str:
    if found is None:
        return ""
    num_above = round(found.recall * num_labels / found.precision) if found.precision else 0
    return (
        f"A threshold of {found.threshold:.2f} gives the best balance: "
        f"{100 * found.precision:.0f} % of the labels above it{number_if_few(num_above, 'label')} "
        f"are right, and {100 * found.recall:.0f} % of all labels"
        f"{number_if_few(num_labels, 'label')} are found."
    )


def _default_sentence(
    asked: str, own: list[str], metric: str, reason: str, evaluation: Evaluation
) -> str:
    """Return why the default scorer is the default, where another has a higher figure here."""
    if len(own) == 1:
        return ""
    default, other = (
        100 * _value(evaluation.scorers[row][ALL_LABELS], metric) for row in (asked, own[0])
    )
    few = number_if_few(evaluation.num_documents)
    if other <= default:
        return (
            f"{asked}, the default, has the highest {metric} of all scorers, {default:.1f} %{few}."
        )
    return (
        f"{own[0]} has a higher {metric} here, {other:.1f} % against {default:.1f} %{few}; {asked} "
        f"is the default because {reason or 'nothing was measured when it was chosen'}."
    )


def _language_sentence(asked: str, languages: Mapping[str, Evaluation]) -> str:
    shares = [
        f"{100 * _value(x.scorers[asked][ALL_LABELS], 'P@1'):.1f} % of {x.num_documents:,} in "
        f"{name_of(language)}"
        for language, x in languages.items()
    ]
    return f"P@1 by language of the document: {', '.join(shares)}." if shares else ""


def _cells(evaluation: Evaluation, shown: list[str], few: int) -> Cells:
    most = evaluation.ks[-1]
    overall = dict.fromkeys(("P@1", f"P@{few}", f"PSP@{few}", f"R@{most}"))
    columns = {metric: (ALL_LABELS, metric) for metric in overall}
    for name, subset in (("seen once", _ONCE_BIN), ("never seen", ZERO_SHOT_BIN)):
        number = number_if_few(evaluation.scorers[shown[0]][subset].num_documents)
        columns[f"R@{most}, {name}{number}"] = (subset, f"R@{most}")
    rows = []
    for row in shown:
        values = (
            evaluation.scorers[row][subset].values.get(metric)
            for subset, metric in columns.values()
        )
        cells = [NOT_MEASURED if value is None else f"{100 * value:.1f}" for value in values]
        rows.append([row, *cells])
    return ["scorer", *columns], rows
