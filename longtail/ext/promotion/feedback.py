"""What people judged since a candidate was trained: a test that neither version has seen.

Only labels that somebody judged count, so that a right label that nobody was shown is no mistake: a
document is worth the share of its pairs of a right and a wrong label that a version puts in the
right order (after bpref, Buckley & Voorhees 2004). Labels are right that were accepted or added.

The labels that were rejected are mistakes of the version that answered, and so are those that had
to be added: whatever differs from it looks better here than it is. So a candidate that looks
*worse* is worse, but one that looks better may only be different.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from longtail.ext.promotion.paired import Version
from longtail.models.errors import DataError
from longtail.models.options import RankingOptions
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.data.feedback import read_feedback

METRIC = "judged pairs in order"
_CHUNK = 256
"""Documents that are scored together."""


@dataclass(frozen=True, slots=True)
class JudgedDocument:
    """A text and what people said of its labels.

    Attributes:
        text: The text.
        right: Ids of labels that were accepted or added.
        wrong: Ids of labels that were rejected.
    """

    text: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NewFeedback:
    """The usable entries of an export.

    Attributes:
        documents: Those with a text, and labels of both kinds that both versions know.
        num_before: Entries left out because they came before the candidate was published, so that
            it may have been trained on them.
        num_unusable: Others left out: deleted, without their text, or without judged labels of
            both kinds that both versions know.
    """

    documents: tuple[JudgedDocument, ...]
    num_before: int
    num_unusable: int


def new_feedback(path: Path, published_at: datetime | None, known: frozenset[str]) -> NewFeedback:
    """Return the entries of an export that came after a version was published.

    Args:
        path: JSON lines of `longtail feedback export`.
        published_at: When the candidate was published; None: no entry is too old.
        known: Ids of the labels that both versions have.
    """
    feedback = read_feedback(path)
    documents, num_before, num_unusable = [], 0, feedback.num_deleted
    for entry in feedback.entries:
        given_at = time_of(entry.given_at)
        if given_at is None:
            raise DataError(
                f"{path}: given_at is {entry.given_at!r}; expected a time, as in the file of "
                "'longtail feedback export'"
            )
        verdicts = (entry.right, entry.rejected)
        right, wrong = (tuple(x for x in ids if x in known) for ids in verdicts)
        if published_at is not None and given_at <= published_at:
            num_before += 1
        elif entry.text and right and wrong:
            documents.append(JudgedDocument(entry.text, right, wrong))
        else:
            num_unusable += 1
    return NewFeedback(tuple(documents), num_before, num_unusable)


def shares_in_order(
    version: Version, documents: Sequence[JudgedDocument]
) -> Float64[np.ndarray, document]:
    """Return the share of the pairs of a right and a wrong label that a version has in order.

    Equal scores are half in order.

    Args:
        version: Knows all the labels.
        documents: Each with labels of both kinds.
    """
    shares: list[float] = []
    row_of = {label.id: row for row, label in enumerate(version.predictor.catalogue)}
    for start in range(0, len(documents), _CHUNK):
        part = documents[start : start + _CHUNK]
        width = max(len(each.right) + len(each.wrong) for each in part)
        labels = np.full((len(part), width), NO_LABEL, dtype=np.int64)
        for line, each in zip(labels, part, strict=True):
            rows = [row_of[label_id] for label_id in (*each.right, *each.wrong)]
            line[: len(rows)] = rows
        batch = version.predictor.read([each.text for each in part])
        scores = version.predictor.score(batch, labels, RankingOptions())
        shares += [_share(line, each) for line, each in zip(scores, part, strict=True)]
    return np.array(shares, dtype=np.float64)


def _share(scores: np.ndarray, document: JudgedDocument) -> float:
    num_right = len(document.right)
    right = scores[:num_right, None]
    wrong = scores[None, num_right : num_right + len(document.wrong)]
    return float(((right > wrong) + 0.5 * (right == wrong)).mean())


def time_of(value: object) -> datetime | None:
    """Return a time in ISO 8601, in UTC where it names no zone; None where it is none."""
    try:
        time = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
