"""Names that manifests, scorers and configurations share."""

from __future__ import annotations

from typing import Literal

LabelPooling = Literal["mean", "cls"]
"""What stands for a label's text: the mean of the last layer over its tokens, or its [CLS]."""
CorrectionName = Literal["none", "prior", "tree"]
"""What is added to linear scores: nothing, log p_n of label frequencies, or that of a tree."""


RETRIEVAL = "retrieval"
CLASSIFIER = "classifier"
LINEAR = "linear"
SPARSE = "sparse"
NEIGHBOURS = "neighbours"
HYBRID = "hybrid"
ENSEMBLE = "ensemble"
HYBRID_OF = (RETRIEVAL, CLASSIFIER)
"""The scorers that make `hybrid` (DEPL+c)."""
BLENDABLE = (RETRIEVAL, CLASSIFIER, LINEAR, SPARSE)
"""The scorers that an ensemble may blend."""
