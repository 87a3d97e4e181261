"""What a manifest says of a version that was learned from another one and feedback."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any


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

    texts: int
    accepted: int
    rejected: int

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
        is_calibrated: Whether probabilities, blends and aims were fitted again.
        judged: What people said ("said"), and how much of it the answers of the version before
            ("before") and of this one ("now") follow.
    """

    version: int
    digest: str
    feedback_sha256: str
    corpus: str
    new_documents: int
    corrected_documents: int
    dev_documents: int
    known_documents: int
    left_out_texts: int
    unresolved_entries: int
    unknown_labels: int
    new_labels: int
    refitted_labels: int
    unknown_words: float
    is_calibrated: bool
    judged: dict[str, Followed]

    @property
    def is_better(self) -> bool:
        """Whether more texts are answered as people said than before, or all of them are."""
        said, before, now = (self.judged[name].texts for name in ("said", "before", "now"))
        return now > before or now == said


def learned_from_json(content: dict[str, Any] | None) -> LearnedFrom | None:
    """Return what stands in a manifest; None where there is nothing.

    Raises:
        TypeError: It has other fields, or a value of another type.
        AttributeError: As well.
    """
    if content is None:
        return None
    judged = {name: Followed(**found) for name, found in content["judged"].items()}
    learned = LearnedFrom(**{**content, "judged": judged})
    _check(learned)
    if judged.keys() != {"said", "before", "now"}:
        raise TypeError(f"judged has the fields {', '.join(judged)}, expected said, before, now")
    for verdicts in judged.values():
        _check(verdicts)
    return learned


def _check(found: LearnedFrom | Followed) -> None:
    expected: dict[str, type] = {"int": int, "str": str, "float": float, "bool": bool}
    for each in fields(found):
        value = getattr(found, each.name)
        wanted = expected.get(str(each.type))
        if wanted is not None and type(value) is not wanted:
            raise TypeError(f"{each.name} {value!r}, expected {each.type}")
        if wanted in {int, float} and not (math.isfinite(value) and value >= 0):
            raise TypeError(f"{each.name} {value!r}, expected at least 0")
