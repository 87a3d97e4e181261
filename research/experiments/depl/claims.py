"""The paper's own findings on DEPL, tested together, and the record of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from longtail.models.names import CLASSIFIER, ENSEMBLE, HYBRID, RETRIEVAL, SPARSE
from longtail.training.evaluation.by_frequency import ZERO_SHOT_BIN
from research.experiments.depl.ablations import BASE, BY_NAME
from research.experiments.depl.evidence import Arm, Evidence, Judged, judge
from research.experiments.findings import findings_as_record, p_cell
from research.experiments.trials import estimate_record, settings_record

_KS = (1, 3, 5)
OVERALL = tuple(f"{metric}@{k}" for metric in ("P", "PSP") for k in _KS)
"""Figures over all labels that every table of settings has."""

ZERO_SHOT = f"R@10 ({ZERO_SHOT_BIN})"
_METHODS = (
    (RETRIEVAL, SPARSE), (RETRIEVAL, CLASSIFIER), (HYBRID, RETRIEVAL), (HYBRID, CLASSIFIER),
    (ENSEMBLE, RETRIEVAL), (ENSEMBLE, SPARSE),
)  # fmt: skip
"""Scorers of the base that are compared, each with another one."""
_HERE = {"better": "holds", "worse": "contrary"}


@dataclass(frozen=True, slots=True)
class Claim:
    """What the paper says of two arms.

    Attributes:
        words: The claim's words.
        better: The arm that is ahead.
        other: The one that it is ahead of.
        is_of_tail: Whether on the labels with 1-9 training documents, else over all labels.
    """

    words: str
    better: Arm
    other: Arm
    is_of_tail: bool

    def figure_of(self, evidence: Evidence) -> str:
        """Return the name of the figure that it is tested by."""
        return evidence.tail_f1 if self.is_of_tail else evidence.precision


def _claims() -> list[Claim]:
    """Return what Zhang et al. 2023 say in section 6 and A.1.5."""
    depl = Arm(RETRIEVAL, BASE)

    def of(setting: str) -> Arm:
        return Arm(RETRIEVAL, setting)

    return [
        Claim("DEPL beats the SVM (Figure 3)", depl, Arm(SPARSE, BASE), True),
        Claim("DEPL beats the classifier (Figure 4)", depl, Arm(CLASSIFIER, BASE), True),
        Claim("DEPL beats DEPL+c (Figure 3)", depl, Arm(HYBRID, BASE), True),
        Claim("DEPL+c beats DEPL (Table 5)", Arm(HYBRID, BASE), depl, False),
        Claim("keywords beat the name alone (Figure 4)", depl, of("name_only"), True),
        Claim("keywords beat the name alone (Table 6)", depl, of("name_only"), False),
        Claim("16 tokens beat 8 (Figure 4)", of("tokens_16"), of("tokens_8"), True),
        Claim("16 tokens beat 32 (Figure 4)", of("tokens_16"), of("tokens_32"), True),
        Claim("mean pooling beats [CLS] (Table 7)", depl, of("cls_labels"), False),
        Claim("the classifier's training helps (Table 6)", depl, of("no_pretraining"), False),
        Claim("10 hard negatives beat none (Table 6)", of("hard_10"), of("hard_0"), False),
        Claim("10 hard negatives beat 5 (Table 6)", of("hard_10"), of("hard_5"), False),
    ]


def judged_claims(evidence: Evidence) -> list[tuple[Claim, Judged]]:
    """Return the findings whose two arms were run and measured, corrected for their number."""
    found = {
        claim: difference
        for claim in _claims()
        if evidence.has(claim.better)
        and evidence.has(claim.other)
        and (
            difference := evidence.difference(claim.better, claim.other, claim.figure_of(evidence))
        )
        is not None
    }
    return list(zip(found, judge(list(found.values()), is_expected=True), strict=True))


def verdict_here(judged: Judged) -> str:
    """Return what a test says of the paper's finding, in a word."""
    return _HERE.get(judged.verdict, judged.verdict)


def compared_settings(evidence: Evidence) -> list[tuple[str, str]]:
    """Return the settings that were run for themselves, each with the one to compare it with."""
    settings = evidence.found[RETRIEVAL]
    pairs = []
    for name in evidence.seconds:
        other = BY_NAME[name].against
        if name != other:
            pairs.append((name, other if other in settings else BASE))
    return pairs


def ablation_record(evidence: Evidence) -> dict[str, Any]:
    """Return findings, comparisons, settings of every scorer, and times as tables of a record."""
    columns = [*OVERALL, evidence.tail_f1, ZERO_SHOT]
    rows = [
        [
            claim.words, claim.figure_of(evidence),
            _name(claim.better), _name(claim.other), *_cells(judged), verdict_here(judged),
        ]
        for claim, judged in judged_claims(evidence)
    ]  # fmt: skip
    minutes = [[name, seconds.mean / 60] for name, seconds in evidence.seconds.items()]
    return {
        "findings": findings_as_record(rows),
        "comparisons": _comparisons(evidence),
        "tables": {
            scorer: settings_record(settings, columns)
            for scorer, settings in evidence.found.items()
        },
        "time": {
            "columns": [{"name": "setting"}, {"name": "minutes a seed", "digits": 1}],
            "rows": minutes,
        },
    }


def _comparisons(evidence: Evidence) -> dict[str, Any]:
    """Return settings beside the one that they name, and scorers of the base, tested two-sided."""
    arms = [(Arm(RETRIEVAL, one), Arm(RETRIEVAL, other)) for one, other in
            compared_settings(evidence)]  # fmt: skip
    arms += [(Arm(scorer, BASE), Arm(other, BASE)) for scorer, other in _METHODS]
    judged = evidence.judged(
        [
            (*pair, figure)
            for pair in arms
            if all(map(evidence.has, pair))
            for figure in (evidence.tail_f1, evidence.precision)
        ],
    )
    rows = [
        [
            BY_NAME[first.setting].what if first.scorer == second.scorer else "scorers of the base",
            figure, _name(first), _name(second), *_cells(found), found.verdict,
        ]
        for (first, second, figure), found in judged.items()
    ]  # fmt: skip
    return findings_as_record(rows)


def _cells(judged: Judged) -> list[Any]:
    advantage = judged.difference.advantage
    return [
        estimate_record(advantage), len(advantage.values),
        p_cell(judged.p_value), p_cell(judged.corrected),
    ]  # fmt: skip


def _name(arm: Arm) -> str:
    return f"`{arm.scorer}`, {arm.setting}"
