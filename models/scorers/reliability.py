"""Which calibrated probabilities are too high, and the warning that says so.

Without a line by rarity (see `Calibration`), as in a model that had no dev split, a scorer's
scores become probabilities by one curve for all labels, as if all had many training documents. A
scorer that learns from each label's own documents gives the others low scores. `retrieval` compares
texts, whether or not a label was ever right; for labels with no training document or one its
probabilities are far too high.
"""

from __future__ import annotations

from collections.abc import Iterable

from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.results import UNRELIABLE_PROBABILITIES, AnswerWarning

MAX_DOCUMENTS = 1
"""Training documents of a label, up to which a text-matching scorer's probability is too high."""
CONFIDENT = 0.5
"""Where no threshold is given, the probability from which a reader takes a label to be right."""


def warnings_about(
    scorer: str,
    labels: Iterable[tuple[int, float | None]],
    catalogue: LabelCatalogue,
    threshold: float | None,
) -> tuple[AnswerWarning, ...]:
    """Return the warning about an overconfident scorer's labels, if one of them calls for it.

    Args:
        scorer: Who found them; an overconfident one (see `ScorerSet.is_overconfident`).
        labels: Index and probability of each label of an answer.
        catalogue: All labels.
        threshold: That all of these labels have passed; None: those of at least `CONFIDENT` count.
    """
    least = CONFIDENT if threshold is None else threshold
    confident = (catalogue[index] for index, p in labels if p is not None and p >= least)
    rare = tuple(label.id for label in confident if label.training_count <= MAX_DOCUMENTS)
    if not rare:
        return ()
    detail = (
        f"labels with at most {MAX_DOCUMENTS} training document: the probabilities that "
        f"{scorer!r} gives them are often far too high; don't decide by probability or threshold "
        "alone, but let a person check them, or use another scorer"
    )
    return (AnswerWarning(UNRELIABLE_PROBABILITIES, detail, rare),)
