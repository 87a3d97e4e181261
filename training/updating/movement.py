"""How far scores move of labels that no feedback was about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from longtail.models.bundle.learned_from import Moved
from longtail.models.options import RankingOptions
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL

MOST_TEXTS = 64
_K = 20
"""Labels of a text that are looked at, of each scorer: its best ones before."""


def measure_movement(
    before: ModelParts, after: ModelParts, texts: Sequence[str], touched: Int64[np.ndarray, touched]
) -> dict[str, Moved]:
    """Return, by scorer, how many scores of labels that were not touched differ in any bit.

    Args:
        before: The model that there was.
        after: The one that there is now, which has the same labels and perhaps more.
        texts: To score; at most `MOST_TEXTS` are.
        touched: Labels that are not looked at.
    """
    old, new = Predictor(before), Predictor(after)
    batches = [predictor.read(list(texts[:MOST_TEXTS]), int) for predictor in (old, new)]
    found = {}
    for scorer in old.scorers:
        if scorer not in new.scorers:
            continue
        options = RankingOptions(scorer=scorer, k=min(_K, len(before.catalogue)))
        labels = old.rank(batches[0], options).labels
        pairs = zip((old, new), batches, strict=True)
        scores = [predictor.score(batch, labels, options) for predictor, batch in pairs]
        is_looked_at = (labels != NO_LABEL) & ~np.isin(labels, touched)
        first, second = (each[is_looked_at] for each in scores)
        is_moved = first != second
        is_finite = np.isfinite(first) & np.isfinite(second)
        found[scorer] = Moved(
            pairs=int(is_looked_at.sum()),
            moved=int(is_moved.sum()),
            largest=float(np.abs(first - second)[is_finite].max(initial=0)),
        )
    return found
