"""How many verdicts of people on the labels of texts a model's answers follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from longtail.ext.learn.verdicts import TextVerdicts, smallest_digests
from longtail.models.bundle.manifest import Followed, Manifest
from longtail.models.options import RankingOptions
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.scorers.calibration import IDENTITY, probabilities_of
from longtail.training.data.chunks import chunks

MOST_JUDGED = 2_000
"""Judged texts that are looked at, those of the smallest SHA-256; more only take longer."""
FIRST = 5
"""Labels of an answer that are read, however improbable they are."""


@dataclass(frozen=True, slots=True)
class JudgedTexts:
    """Texts, and the verdicts on their labels.

    Attributes:
        texts: The texts.
        right: Labels that were accepted or added, by text, padded with `NO_LABEL`.
        wrong: Labels that were rejected, as well.
    """

    texts: list[str]
    right: Int64[np.ndarray, "text right"]
    wrong: Int64[np.ndarray, "text wrong"]

    @classmethod
    def of(cls, said: Sequence[TextVerdicts]) -> JudgedTexts:
        """Return the verdicts on some texts; of very many texts, some stand for all."""
        is_chosen = smallest_digests((each.text for each in said), MOST_JUDGED)
        said = [each for each, is_in in zip(said, is_chosen, strict=True) if is_in]
        return cls(
            [each.text for each in said],
            _padded([each.right for each in said]),
            _padded([each.wrong for each in said]),
        )

    def known_in(self, num_labels: int) -> JudgedTexts:
        """Return the same verdicts with `NO_LABEL` for labels that a smaller catalogue lacks."""
        right, wrong = (np.where(x < num_labels, x, NO_LABEL) for x in (self.right, self.wrong))
        return JudgedTexts(self.texts, right, wrong)

    @property
    def said(self) -> Followed:
        """The texts and the verdicts on them."""
        verdicts = (int((each != NO_LABEL).sum()) for each in (self.right, self.wrong))
        return Followed(len(self.texts), *verdicts)

    def followed(
        self,
        first: Int64[np.ndarray, "text k"],
        right: Float64[np.ndarray, "text right"],
        wrong: Float64[np.ndarray, "text wrong"],
        threshold: float,
    ) -> Followed:
        """Count the verdicts that answers follow, and the texts of which they follow all.

        An accepted label is to be among the first labels, or to have a probability from the
        threshold on. A rejected one is to have a lower probability, and none above that of an
        accepted label of the text.

        Args:
            first: The first labels of each answer.
            right: Probabilities of the accepted labels; -inf where the model lacks the label.
            wrong: Probabilities of the rejected labels.
            threshold: From this probability on, a label is answered.
        """
        is_accepted, is_rejected = self.right != NO_LABEL, self.wrong != NO_LABEL
        is_found = (right >= threshold) | is_among(self.right, first)
        least = np.where(is_accepted, right, np.inf).min(axis=1, initial=np.inf)
        is_left_out = (wrong < threshold) & (wrong <= least[:, None])
        is_followed = (is_found | ~is_accepted).all(axis=1) & (is_left_out | ~is_rejected).all(
            axis=1
        )
        return Followed(
            int(is_followed.sum()),
            int((is_found & is_accepted).sum()),
            int((is_left_out & is_rejected).sum()),
        )


def count_followed(parts: ModelParts, manifest: Manifest, judged: JudgedTexts) -> Followed:
    """Return how many verdicts the answers of a model's default scorer follow.

    Where the scorer has no threshold, the first labels are the answer.

    Args:
        parts: The model.
        manifest: With its default scorer and its thresholds.
        judged: The verdicts; on labels that the model lacks as well.
    """
    predictor, name = Predictor(parts), manifest.default_scorer
    known = judged.known_in(len(parts.catalogue))
    calibration = parts.calibrations.get(name, IDENTITY)
    counts = parts.catalogue.training_counts
    options = RankingOptions(scorer=name, k=min(FIRST, len(parts.catalogue)))
    first, right, wrong, start = [], [], [], 0
    for texts in chunks(judged.texts):
        batch = predictor.read(texts)
        rows = slice(start, start + len(texts))
        first.append(predictor.rank(batch, options).labels)
        right.append(predictor.score(batch, known.right[rows], options))
        wrong.append(predictor.score(batch, known.wrong[rows], options))
        start = rows.stop
    labels = np.concatenate(first)
    of_right, of_wrong = (
        probabilities_of(calibration, np.concatenate(scores), counts[labels])
        for scores, labels in ((right, known.right), (wrong, known.wrong))
    )
    if (threshold := manifest.thresholds.get(name)) is None:
        threshold = np.inf
        of_wrong[is_among(known.wrong, labels)] = np.inf
    is_unknown = (judged.right != NO_LABEL) & (known.right == NO_LABEL)
    of_right[is_unknown] = -np.inf
    return judged.followed(labels, of_right, of_wrong, threshold)


def _padded(rows: Sequence[frozenset[int]]) -> Int64[np.ndarray, "text label"]:
    width = max(map(len, rows), default=0)
    found = np.full((len(rows), width), NO_LABEL, dtype=np.int64)
    for row, labels in enumerate(rows):
        found[row, : len(labels)] = sorted(labels)
    return found


def is_among(
    labels: Int64[np.ndarray, "text m"], others: Int64[np.ndarray, "text k"]
) -> Bool[np.ndarray, "text m"]:
    """Return which labels of each text are among others of the same text."""
    is_here = (labels[:, :, None] == others[:, None, :]).any(axis=2)
    found: Bool[np.ndarray, "text m"] = is_here & (labels != NO_LABEL)
    return found
