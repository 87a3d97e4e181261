"""One pass over the training texts for all that a run wants to know of them before it begins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from longtail.models.scorers.character_terms import LetterCount
from longtail.models.scorers.markup import without_markup
from longtail.training.data.languages import LanguageCount
from longtail.training.data.splits import Split

MAX_CHARACTERS = 10_000
"""Kept of a warm-up text."""
NUM_SAMPLED = 256
"""Texts of the sample, from all over the corpus."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What a pass over the training texts found.

    Attributes:
        sample: Texts at equal distances, none of them blank.
        warmup_texts: What the bundle carries as warm-up texts, the shortest first (see
            `longtail.models.bundle.trained_on`).
        unspaced_share: Share of the letters, HTML left out, that are of scripts without spaces
            between words.
        markup_share: Share of the texts that have HTML.
        languages: How many texts are in which language.
    """

    sample: list[str]
    warmup_texts: list[str]
    unspaced_share: float
    markup_share: float
    languages: LanguageCount


def survey(split: Split, num_warmup_texts: int) -> Survey:
    """Read the texts of a split once; only chosen texts are kept."""
    lengths = split.scan().lengths
    step = max(1, len(lengths) // NUM_SAMPLED)
    sampled = range(0, min(len(lengths), step * NUM_SAMPLED), step)
    chosen = rows_by_length(lengths, num_warmup_texts)
    letters, languages, texts = LetterCount(), LanguageCount(), dict[int, str]()
    wanted = {*sampled, *chosen}
    num_marked = 0
    for row, text in enumerate(split.texts()):
        cleaned = without_markup(text)
        letters.add(cleaned)
        languages.add(cleaned)
        num_marked += cleaned != text
        if row in wanted:
            texts[row] = text
    return Survey(
        sample=[texts[row] for row in sampled if texts[row].strip()],
        warmup_texts=[texts[row][:MAX_CHARACTERS] for row in chosen],
        unspaced_share=letters.unspaced_share,
        markup_share=num_marked / max(1, len(lengths)),
        languages=languages,
    )


def rows_by_length(lengths: Int64[np.ndarray, text], count: int) -> list[int]:
    """Return texts that spread over the lengths, the shortest first; always the same ones.

    Of `count` equal parts of the texts in order of length, the middle one of each; all of them
    where there are no more.
    """
    if count == 0:
        return []
    by_length = np.argsort(lengths, kind="stable")
    count = min(count, len(by_length))
    middles = (2 * np.arange(count) + 1) * len(by_length) // (2 * count)
    rows: list[int] = by_length[middles].tolist()
    return rows
