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
WORD_VECTORS = "word_vectors"
WORD_NEIGHBOURS = "word_neighbours"
HYBRID = "hybrid"
ENSEMBLE = "ensemble"
FAST = "fast"
HYBRID_OF = (RETRIEVAL, CLASSIFIER)
"""The scorers that make `hybrid` (DEPL+c)."""

MAX_NGRAM = 3
"""Words of the longest phrase that can be a feature."""

MAX_TITLE_WEIGHT = 100.0
"""Largest weight of a title's words beside the whole text."""

MAX_DOCUMENTS = 2**40
"""Largest count of documents in a bundle, so that sums of counts fit 64 bits."""
