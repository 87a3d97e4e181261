"""Which texts are unlike the documents of a corpus, and the warning that says so.

Probabilities are fitted on documents of the corpus and hold for such texts alone. So a text is
compared with documents that the model was not trained on: how many of its words the model knows,
which share of them it doesn't know, and how similar the nearest training document is, where that is
looked for. A bound is an order statistic: of n held-out documents and a new one of the same kind,
each is equally likely to have the smallest value, the second smallest, and so on, so that the new
one lies below the k-th smallest of the n with a probability of at most k / (n + 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from longtail.models.files.typed_json import json_forms
from longtail.models.results import UNLIKE_TRAINING, AnswerWarning, Familiarity
from longtail.models.scorers.short_texts import ShortTexts

FAMILIAR_NAME = "familiar.json"
FALSE_ALARMS = 0.01
"""Most of the documents of the corpus's kind that are warned of, as a share."""
LEAST_DOCUMENTS = 100
"""Held-out documents without which there are no bounds: too many documents would be outside."""
_Count = Annotated[int, Field(ge=0)]
_Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class FamiliarRange:
    """The bounds of texts that are like the held-out documents.

    Attributes:
        num_documents: The held-out documents.
        false_alarms: Of documents of their kind, the share that is outside, at most in expectation:
            `FALSE_ALARMS`, or more where a bound is the least or largest value that there is.
        least_known_words: Words of the vocabulary in a text.
        most_known_words: The same.
        most_unknown_share: Of its words, those outside the vocabulary.
        least_similarity: Cosine of the nearest training document; None where none are remembered.
        short_texts: By scorer, how its log-odds change in shorter texts; empty: they don't.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    num_documents: _Count
    false_alarms: _Share
    least_known_words: _Count
    most_known_words: _Count
    most_unknown_share: _Share
    least_similarity: _Share | None
    short_texts: Mapping[str, ShortTexts] = field(default_factory=dict)

    @classmethod
    def of_documents(cls, documents: Sequence[Familiarity]) -> FamiliarRange | None:
        """Return the bounds of documents that the model was not trained on; None: too few."""
        num = len(documents)
        if num < LEAST_DOCUMENTS:
            return None
        known = sorted(each.known_words for each in documents)
        unknown = sorted(map(_unknown_share, documents))
        similar = sorted(
            each.nearest_similarity for each in documents if each.nearest_similarity is not None
        )
        num_bounds = 4 if similar else 3
        rank = max(1, math.floor(FALSE_ALARMS * (num + 1) / num_bounds))  # k
        return cls(
            num_documents=num,
            false_alarms=num_bounds * rank / (num + 1),
            least_known_words=known[rank - 1],
            most_known_words=known[-rank],
            most_unknown_share=unknown[-rank],
            least_similarity=similar[rank - 1] if similar else None,
        )

    def warnings_about(self, text: Familiarity) -> tuple[AnswerWarning, ...]:
        """Return the warning about a text that is outside the bounds; none about others."""
        reasons = []
        known, share, nearest = text.known_words, _unknown_share(text), text.nearest_similarity
        if not self.least_known_words <= known <= self.most_known_words:
            reasons.append(
                f"it has {known} known words (documents: {self.least_known_words} to "
                f"{self.most_known_words})"
            )
        if share > self.most_unknown_share:
            reasons.append(
                f"{share:.0%} of its words are unknown (documents: at most "
                f"{self.most_unknown_share:.0%})"
            )
        if (
            nearest is not None
            and self.least_similarity is not None
            and nearest < self.least_similarity
        ):
            reasons.append(
                f"the similarity of the nearest training document is {nearest:.2f} (documents: at "
                f"least {self.least_similarity:.2f})"
            )
        if not reasons:
            return ()
        detail = (
            f"the text is unlike the documents that the model was made for: {'; '.join(reasons)}; "
            "its probabilities may be far off: let a person check the labels"
        )
        return (AnswerWarning(UNLIKE_TRAINING, detail, ()),)


def _unknown_share(text: Familiarity) -> float:
    return 1 - text.known_words / text.num_words if text.num_words else 1.0


familiar_to_json, familiar_from_json = json_forms(FamiliarRange)
"""Write and read the file `FAMILIAR_NAME`; reading raises ValueError."""
