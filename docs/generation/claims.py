"""The table of what the papers claim and what the committed results say of it.

A verdict is counted, never written: the tests of a claim are in `findings-*.json`, each corrected
by Holm's method for all that its experiment tested.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy import stats

from longtail.training.evaluation.significance import holm

SIGNIFICANT = 0.05
_SETS = {
    "tate": "`tate`",
    "tate-rates": "`tate`, rates chosen",
    "eurlex57k": "EURLEX57K",
    "eurlex57k-512": "EURLEX57K, B = 512",
    "eurlex57k-ablations": "EURLEX57K, 1 epoch",
    "library-keywords": "`library-keywords`",
    "demo": "demo",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """What a paper claims.

    Attributes:
        words: The claim.
        place: Where the paper makes it.
        finding: How the rows of the records begin that test it.
        experiment: The records: "findings-EXPERIMENT-SET.json".
        shown: The figure whose effect is shown, as it is in the column "by".
        unit: Unit of the effect; the records have "nats" in hundredths.
    """

    words: str
    place: str
    finding: str
    experiment: str
    shown: str
    unit: str = ""


_TAIL, _HEAD = "retrieval, R@10 Tail", "retrieval, R@10 Head"
_F1, _P5 = "macro-F1@5 (1-9)", "P@5"
CLAIMS: dict[str, tuple[Claim, ...]] = {
    "DEPL": (
        Claim("Retrieval by label descriptions beats the SVM on rare labels", "Figure 3", "DEPL beats the SVM", "depl", _F1),
        Claim("It beats the BERT classifier there", "Figure 4", "DEPL beats the classifier", "depl", _F1),
        Claim("Alone it beats DEPL+c there", "Figure 3", "DEPL beats DEPL+c", "depl", _F1),
        Claim("DEPL+c beats it over all labels", "Table 5, Eq. 4", "DEPL+c beats DEPL", "depl", _P5),
        Claim("Keywords beat the name alone on rare labels", "Figure 4", "keywords beat the name alone (Figure 4)", "depl", _F1),
        Claim("and over all labels", "Table 6", "keywords beat the name alone (Table 6)", "depl", _P5),
        Claim("16 tokens of description beat 8", "Figure 4", "16 tokens beat 8", "depl", _F1),
        Claim("and 32", "Figure 4", "16 tokens beat 32", "depl", _F1),
        Claim("The mean over a label's tokens beats [CLS]", "Table 7, Eq. 2", "mean pooling beats [CLS]", "depl", _P5),
        Claim("Training the classifier first helps", "Table 6", "the classifier's training helps", "depl", _P5),
        Claim("10 hard negatives beat none", "Table 6", "10 hard negatives beat none", "depl", _P5),
        Claim("and 5", "Table 6", "10 hard negatives beat 5", "depl", _P5),
    ),
    "Rawat et al. 2021": (
        Claim("Within-batch draws with constant weights are best on Tail of the schemes of Table 1", "Figure 1", "within-batch with constant", "sampling-bias", _TAIL),
        Claim('"Tail" weights beat all sampled schemes on Tail', "Eq. 16, Figure 1", '"tail" weights beat all sampled', "sampling-bias", _TAIL),
        Claim('"Tail" weights are best on Tail with uniform draws', "Eq. 16, Figure 1", '"tail" weights are best, uniform', "sampling-bias", _TAIL),
        Claim("with draws within the batch", "Eq. 16, Figure 1", '"tail" weights are best, within_batch', "sampling-bias", _TAIL),
        Claim("with draws by frequency", "Eq. 16, Figure 1", '"tail" weights are best, frequency', "sampling-bias", _TAIL),
        Claim("Relative weights are best on Head within the batch", "Table 2", "relative weights are best, within_batch", "sampling-bias", _HEAD),
        Claim("Logit adjustment beats softmax on Tail", "section 5.1", "logit adjustment beats softmax", "sampling-bias", _TAIL),
    ),
    "Reddi et al. 2019": (
        Claim("The hardest of B sampled negatives (Top-1) beats all of them", "section 5", "Top-1 beats plain", "negative-mining", "largest B, R@5"),
        Claim("The 16 hardest do", "section 5", "Top-16 beats plain", "negative-mining", "largest B, R@5"),
        Claim("The 64 hardest do", "section 5", "Top-64 beats plain", "negative-mining", "largest B, R@5"),
        Claim("The 256 hardest do", "section 5", "Top-256 beats plain", "negative-mining", "largest B, R@5"),
    ),
    "Bamler & Mandt 2020": (
        Claim("Adversarial negatives end with a better accuracy than uniform ones", "Figure 1", "adversarial negatives end above uniform ones by accuracy", "adversarial", "all_labels, accuracy"),
        Claim("and with a better log likelihood on one of two sets", "Figure 1", "adversarial negatives end above uniform ones by log", "adversarial", "all_labels, log_likelihood", "nats"),
    ),
}  # fmt: skip


_ADVERSARIAL = "Bamler & Mandt 2020"
NAMES = ("claim", "paper, place", "here", "effect by set")


def claims_table(folder: Path) -> dict[str, Any]:
    """Return a row for each claim of the papers.

    Args:
        folder: The records' folder.
    """
    rows = [
        _row(paper, claim, sorted(folder.glob(f"findings-{claim.experiment}-*.json"), key=_order))
        for paper, claims in CLAIMS.items()
        for claim in claims
    ]
    rows.append(_sooner_row(folder))
    return {"columns": [{"name": name} for name in NAMES], "rows": rows}


def sources(folder: Path) -> set[str]:
    """Return the names of the records that the table is made of."""
    return {path.name for path in folder.glob("findings-*.json")}


def _order(path: Path) -> int:
    """Put the set with the most seeds first."""
    return -len(json.loads(path.read_text(encoding="utf-8"))["seeds"])


def _findings(path: Path, beginning: str) -> list[dict[str, Any]]:
    """Return the rows of a record that test a claim, by column."""
    table = json.loads(path.read_text(encoding="utf-8"))["figures"]["findings"]
    names = [column["name"] for column in table["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in table["rows"]]
    return [row for row in rows if row["finding"].startswith(beginning)]


def _row(paper: str, claim: Claim, paths: Sequence[Path]) -> list[str]:
    tested, effects = [], []
    for path in paths:
        if not (rows := _findings(path, claim.finding)):
            continue
        shown = _shown(rows, claim.shown)
        name = path.stem.removeprefix(f"findings-{claim.experiment}-")
        here = [row["here"] for row in rows if row["p, corrected"] is not None]
        tested += here
        effect = _effect(shown, claim.unit)
        effects.append(f"{_link(name, path)} {effect}{_mark(here)} ({shown['seeds']})")
    by = claim.shown.rpartition(", ")[2].replace("_", " ")
    return [claim.words, f"{paper}, {claim.place}", verdict(tested), f"{by}: {'; '.join(effects)}"]


def _link(name: str, path: Path) -> str:
    """Return the name of a set, with a link to the record."""
    return f"[{_SETS.get(name, name)}]({path.name})"


def _mark(here: Sequence[str]) -> str:
    """Return a mark of tests that hold, and one of tests that say the contrary, with how many."""
    marks = ""
    for word, mark in (("holds", "*"), ("contrary", "†")):
        number = here.count(word)
        if number:
            marks += mark if number == len(here) == 1 else f" {number}/{len(here)}{mark}"
    return marks or ("" if here else "?")


def _shown(rows: Sequence[dict[str, Any]], by: str) -> dict[str, Any]:
    """Return the row of the figure that is shown; of several B, that of the largest."""
    ending = by.rsplit(", ", 1)[-1]
    fitting = [row for row in rows if row["by"] == by]
    return (fitting or [row for row in rows if row["by"].endswith(ending)])[-1]


def verdict(tested: Sequence[str]) -> str:
    """Return what the corrected tests of a claim say together.

    Args:
        tested: Result of each test: "holds", "contrary", or that it is not significant.
    """
    num_holding, num_contrary = tested.count("holds"), tested.count("contrary")
    if num_holding == num_contrary == 0:
        return "not decided"
    if len(tested) in (num_holding, num_contrary):
        return "holds" if num_holding else "doesn't hold"
    counts = {"holds": num_holding, "contrary": num_contrary}
    some = ", ".join(f"{word} in {number}" for word, number in counts.items() if number)
    return f"{some} of {len(tested)}"


def _effect(row: dict[str, Any], unit: str = "") -> str:
    scale, tail = (0.01, f" {unit}") if unit == "nats" else (1.0, "")
    return f"{scale * row['advantage']['mean']:+.2f}{tail}"


@dataclass(frozen=True, slots=True)
class _Ratio:
    """How many times as soon one method is as good as another, at one level of one set."""

    set_name: str
    mean: float
    standard_error: float
    num_seeds: int

    @property
    def p_below_ten(self) -> float | None:
        """The p value of the one-sided t-test against ten; None for one seed."""
        if self.num_seeds < 2 or math.isnan(self.standard_error):
            return None
        if not self.standard_error:
            return float(self.mean >= 10)
        return float(stats.t.cdf((self.mean - 10) / self.standard_error, self.num_seeds - 1))


def _ratios(folder: Path) -> list[_Ratio]:
    """Return all that were measured; "never" is none."""
    found = []
    for path in sorted(folder.glob("findings-adversarial-*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        name = _SETS[path.stem.removeprefix("findings-adversarial-")]
        table = record["figures"]["envelope"]
        places = [at for at, x in enumerate(table["columns"]) if "times as soon" in x["name"]]
        found += [
            _Ratio(name, cell["mean"], cell.get("standard_error", math.nan), len(record["seeds"]))
            for row in table["rows"]
            if row[2] == "`adversarial`"
            for cell in (row[at] for at in places)
            if cell is not None
        ]
    return found


def _sooner_row(folder: Path) -> list[str]:
    """Return the row of "an order of magnitude sooner": is each ratio below ten?"""
    ratios = _ratios(folder)
    num_below = sum(
        p is not None and p < SIGNIFICANT for p in holm([x.p_below_ten for x in ratios])
    )
    effects = []
    for name in dict.fromkeys(each.set_name for each in ratios):
        own = [each for each in ratios if each.set_name == name]
        best = max(own, key=lambda each: each.mean)
        low = min(each.mean for each in own)
        effects.append(
            f"{name} {low:.1f} to {best.mean:.1f} times as soon at {len(own)} levels "
            f"({best.num_seeds})"
        )
    some = f"doesn't hold in {num_below} of {len(ratios)}"
    return [
        "They converge an order of magnitude sooner",
        f"{_ADVERSARIAL}, Figure 1",
        "doesn't hold" if num_below == len(ratios) else some,
        "; ".join(effects),
    ]
