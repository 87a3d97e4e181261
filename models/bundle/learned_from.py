"""What a manifest says of a version that was learned from another one and feedback."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

_Count = Annotated[int, Field(ge=0)]
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Followed:
    """Verdicts of people on the labels of texts: all of them, or those that answers follow.

    A text is answered as people said when each accepted label is among the first five of the
    default scorer's answer or has a probability from the scorer's threshold on, and each rejected
    label has a lower probability, and none above that of an accepted label.

    Attributes:
        texts: Judged texts, or those that are answered as people said.
        accepted: Pairs of a text and a label that was accepted, added or proposed.
        rejected: Pairs of a text and a label that was rejected.
    """

    __pydantic_config__: ClassVar = _STRICT
    texts: _Count
    accepted: _Count
    rejected: _Count

    @property
    def verdicts(self) -> int:
        """Pairs of a text and a label."""
        return self.accepted + self.rejected


@dataclass(frozen=True, slots=True)
class LearnedFrom:
    """The version that a version was learned from, and what was learned.

    Attributes:
        version: Number of that version in the registry in which it was learned.
        digest: Its digest.
        feedback_sha256: Of what the feedback says, whenever and by whom it was said.
        corpus: Fingerprint of the corpus that was given; empty without one.
        new_documents: Texts that are training documents now and were not.
        corrected_documents: Training documents whose labels were changed.
        dev_documents: Texts that joined the dev split.
        known_documents: Texts whose labels were known as they were said to be.
        left_out_texts: Texts that are in the corpus's dev or test split.
        unresolved_entries: Entries without a text whose text is not in the corpus.
        unknown_labels: Ids that are said to be right or wrong and are no label's.
        new_labels: Labels that the version before lacked.
        refitted_labels: Labels whose sparse classifiers were fitted, or dropped for want of
            documents.
        unknown_words: Share of words that the vocabulary lacks, of those that a vocabulary of the
            new documents would have.
        is_calibrated: Whether probabilities, blends and parts were fitted again.
        judged: What people said ("said"), and how much of it the answers of the version before
            ("before") and of this one ("now") follow.
    """

    __pydantic_config__: ClassVar = _STRICT
    version: _Count
    digest: str
    feedback_sha256: str
    corpus: str
    new_documents: _Count
    corrected_documents: _Count
    dev_documents: _Count
    known_documents: _Count
    left_out_texts: _Count
    unresolved_entries: _Count
    unknown_labels: _Count
    new_labels: _Count
    refitted_labels: _Count
    unknown_words: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    is_calibrated: bool
    judged: Annotated[dict[Literal["said", "before", "now"], Followed], Field(min_length=3)]

    @property
    def is_better(self) -> bool:
        """Whether more texts are answered as people said than before, or all of them are."""
        said, before, now = (self.judged[name].texts for name in ("said", "before", "now"))
        return now > before or now == said
