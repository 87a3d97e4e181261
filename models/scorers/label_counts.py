"""How many labels a text needs: the threshold "auto"."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64


def automatic_thresholds(
    probabilities: Float64[np.ndarray, "text k"], threshold: float
) -> Float64[np.ndarray, text]:
    """Return the probability from which the labels of each text are worth answering.

    Of the m most probable labels, the expected F1 of a document is about

        2 sum_{i <= m} p_i / (m + sum_i p_i),

    and its maximum F is reached by the labels of at least F / 2. The F1 over all pairs of documents
    and labels is largest for one threshold for all texts. The mean of the two serves both measures.

    Args:
        probabilities: Of the best labels of each text, falling; 0 behind the last one.
        threshold: Of the largest F1 over all pairs.
    """
    num_labels = np.arange(1, probabilities.shape[1] + 1)
    totals = np.cumsum(probabilities, axis=1)
    f1 = 2 * totals / (num_labels + totals[:, -1:])
    found: Float64[np.ndarray, text] = (f1.max(axis=1) / 2 + threshold) / 2
    return found
