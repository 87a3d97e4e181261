"""Linear scores of labels over document vectors, and their correction (Bamler & Mandt 2020).

A model that was trained to tell labels from drawn ones, y' ~ p_n(y'|x), learns log p_D - log p_n
up to a constant of the document. Adding log p_n(y|x) gives the scores of a softmax classifier
(Eq. 5); p_n is then called the *correction*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from longtail.models.label_tree.tree import LabelTree
from longtail.models.names import CorrectionName


@dataclass(frozen=True, slots=True)
class LinearModel:
    """Linear scores of labels over document vectors: <phi_doc(x), w_l> + b_l.

    Attributes:
        weight: One row w_l for each label that it can score.
        bias: b_l of each row.
        labels: The label index of each row, rising.
    """

    weight: Float32[np.ndarray, "covered dim"]
    bias: Float32[np.ndarray, covered]
    labels: Int64[np.ndarray, covered]


@dataclass(frozen=True, slots=True)
class LinearScorer:
    """The scorer `linear` of a trained model.

    Attributes:
        model: Its rows; labels without training documents have none.
        correction: What it was trained to be corrected with (Bamler & Mandt 2020, Eq. 5); with
            "prior", log p_n is the log of a label's share of the training pairs.
        tree: p_n(y|x) over the labels of the catalogue, where the correction is "tree"; else None.
            Labels that were added after training are no leaves of it.
    """

    model: LinearModel
    correction: CorrectionName
    tree: LabelTree | None = None
