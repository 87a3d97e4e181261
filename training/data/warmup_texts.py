"""Which training texts a bundle carries as warm-up texts (see `models.bundle.warmup_texts`)."""

from __future__ import annotations

import numpy as np

from training.data.splits import Split

MAX_CHARACTERS = 10_000
"""Kept of a text."""


def choose_probes(split: Split, count: int) -> list[str]:
    """Return texts of a split that spread over its lengths, the shortest first.

    Of `count` equal parts of the texts in order of length, the middle one of each; all of them
    where there are no more. Always the same ones; one text is held at a time.

    Args:
        split: Its documents are texts.
        count: How many are wanted.

    Raises:
        DataError: As `Split.texts`.
    """
    if count == 0:
        return []
    by_length = np.argsort([len(text) for text in split.texts()], kind="stable")
    count = min(count, len(by_length))
    middles = (2 * np.arange(count) + 1) * len(by_length) // (2 * count)
    place_of = {int(row): place for place, row in enumerate(by_length[middles])}
    found = {
        place_of[row]: text[:MAX_CHARACTERS]
        for row, text in enumerate(split.texts())
        if row in place_of
    }
    return [found[place] for place in range(count)]
