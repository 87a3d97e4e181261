"""Names that manifests, scorers and configurations share."""

from __future__ import annotations

from typing import Literal

Pooling = Literal["mean", "words", "cls", "last"]
"""What stands for a text: the mean of the last layer over its tokens, the same without the special
ones at both ends ([CLS] and [SEP]), its first one ([CLS]), or its last one."""
Activation = Literal["identity", "tanh"]
"""What a pooler's numbers go through."""
Precision = Literal["auto", "float32", "bfloat16"]
"""Precision of an encoder's weights and activations; its vectors are always float32."""
OnnxPrecision = Literal["onnx-int8"]
"""What ONNX Runtime computes an encoder in; its vectors are float32."""
ONNX_INT8: OnnxPrecision = "onnx-int8"
IndexName = Literal["auto", "faiss", "torch"]
CorrectionName = Literal["none", "prior", "tree"]
"""What is added to linear scores: nothing, log p_n of label frequencies, or that of a tree."""


RETRIEVAL = "retrieval"
CLASSIFIER = "classifier"
LINEAR = "linear"
SPARSE = "sparse"
NAMES = "names"
NEIGHBOURS = "neighbours"
DENSE_NEIGHBOURS = "dense_neighbours"
HYBRID = "hybrid"
ENSEMBLE = "ensemble"
FAST = "fast"
HYBRID_OF = (RETRIEVAL, CLASSIFIER)
"""The scorers that make `hybrid` (DEPL+c)."""

WarningCode = Literal["unreliable-probabilities", "unlike-training"]
"""What an answer warns of: too high probabilities of labels, or a text of another kind."""

Abstention = Literal["no-known-word", "unlike-training", "below-threshold"]
"""Why no label of a text is accepted: the model knows none of its words; the text is unlike the
documents of the corpus; or no label reaches the threshold of the promise."""

ReviewFailure = Literal[
    "busy", "daily-limit", "not-fitted", "request-limit", "reviewer-failed", "reviewer-paused",
    "time-limit",
]  # fmt: skip
"""Why a text was not reviewed: too much work is waiting for its candidates; the reviews of the day
or of the request are used up; the version was not fitted to the reviewer of the service, or for
another scorer; the reviewer gave no usable scores, or none in time."""

MAX_NGRAM = 3
"""Words of the longest phrase that can be a feature."""

MAX_TITLE_WEIGHT = 100.0
"""Largest weight of a title's words beside the whole text."""

MAX_DOCUMENTS = 2**40
"""Largest count of documents in a bundle, so that sums of counts fit 64 bits."""

AimName = Literal["precision", "rare_labels", "coverage", "propensity"]
"""What an answer is to be good at: P@k, macro-F1@k on rare labels, coverage@k, or PSP@k."""
PRECISION: AimName = "precision"
RARE_LABELS: AimName = "rare_labels"
COVERAGE: AimName = "coverage"
PROPENSITY: AimName = "propensity"
AIM_NAMES: tuple[AimName, ...] = (PRECISION, RARE_LABELS, COVERAGE, PROPENSITY)
