"""The label vectors of a model with an encoder, after feedback: imports PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Int64

from longtail.models.encoders.dual_encoder import encode_all
from longtail.models.encoders.tokens import tokenize_texts
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.parts.dense_parts import DenseParts
from longtail.models.scorers.linear import LinearScorer


def update_dense(
    dense: DenseParts,
    catalogue: LabelCatalogue,
    described: Int64[np.ndarray, described],
    settings: Mapping[str, Any],
    label_prefix: str,
) -> DenseParts:
    """Encode the labels that are described anew; nothing is trained.

    Args:
        dense: Of the model before.
        catalogue: The labels, with their texts.
        described: Labels to encode.
        settings: Of the training of the model.
        label_prefix: Put before each label's text.
    """
    if len(described):
        texts = [catalogue[label].pseudo_description for label in described.tolist()]
        max_tokens = settings["descriptions"]["max_tokens"]
        tokens = tokenize_texts(dense.tokenizer, texts, max_tokens, label_prefix)
        pad_id = int(dense.tokenizer.pad_token_id or 0)
        encoded = encode_all(dense.encoder, tokens, "label", pad_id=pad_id)
        num_more = len(catalogue) - len(dense.label_vectors)
        vectors = np.pad(dense.label_vectors, ((0, num_more), (0, 0)))
        vectors[described] = encoded
        dense = replace(dense, label_vectors=vectors)
    if dense.linear is not None and dense.linear.correction == "prior":
        dense = replace(dense, linear=_with_documents(dense.linear, catalogue))
    return dense


def _with_documents(linear: LinearScorer, catalogue: LabelCatalogue) -> LinearScorer:
    """Leave out rows of labels without documents, which have no share to correct by."""
    model = linear.model
    kept = catalogue.training_counts[model.labels] > 0
    rows = replace(
        model, weight=model.weight[kept], bias=model.bias[kept], labels=model.labels[kept]
    )
    return replace(linear, model=rows)
