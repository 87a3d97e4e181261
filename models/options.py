"""What a query asks for about each of its texts. Needs neither PyTorch nor NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from models.errors import RequestError
from models.labels.filters import LabelFilter

MAX_TAIL_DIAL = 1000.0
"""Beyond it, float32 scores would tell labels of unlike frequency apart, and no others."""


@dataclass(frozen=True, slots=True)
class RankingOptions:
    """What to answer about a text; texts of equal options are ranked together.

    Attributes:
        k: Number of labels per text, at least 1.
        scorer: One of the model's; None: its default.
        threshold: Least probability of a label, from 0 to 1; None: labels of any.
        correction: What is added to the scores: "none", or what the scorer was trained with; None:
            the latter.
        tail_dial: tau, from 0 to `MAX_TAIL_DIAL`: tau times log pi_y is taken off the score of
            every label y, pi_y being its share of the training pairs (logit adjustment; Menon et
            al. 2021). Above 0, scores are no log-odds any more, and labels have no probabilities.
        label_filter: Whose labels are returned; None: all.
        explain: Whether to say why a text got each label; some milliseconds a label.
    """

    k: int = 5
    scorer: str | None = None
    threshold: float | None = None
    correction: str | None = None
    tail_dial: float = 0.0
    label_filter: LabelFilter | None = None
    explain: bool = False

    def __post_init__(self) -> None:
        """Refuse what no model could answer.

        Raises:
            RequestError: A number is out of its range.
        """
        if self.k < 1:
            raise RequestError(f"k is {self.k}; expected at least 1, at most the number of labels")
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise RequestError(f"threshold is {self.threshold}; expected a probability from 0 to 1")
        if not 0 <= self.tail_dial <= MAX_TAIL_DIAL:
            raise RequestError(
                f"tail_dial is {self.tail_dial}; expected a number from 0 to {MAX_TAIL_DIAL:g}"
            )


class RankingKeywords(TypedDict, total=False):
    """The fields of `RankingOptions` as keyword arguments."""

    k: int
    scorer: str | None
    threshold: float | None
    correction: str | None
    tail_dial: float
    label_filter: LabelFilter | None
    explain: bool
