"""The dense half of a model on disk; importing it imports PyTorch."""

from __future__ import annotations

from typing import get_args

import numpy as np
import torch
from jaxtyping import Float32

from longtail.models.bundle.bundle import ENCODER_FOLDER, Bundle
from longtail.models.bundle.manifest import EncoderInfo
from longtail.models.encoders.bert import load_encoder, load_tokenizer
from longtail.models.encoders.check import check_padding_id, check_pooling
from longtail.models.encoders.dual_encoder import DualEncoder
from longtail.models.encoders.families import VectorHead
from longtail.models.errors import BundleCorruptError
from longtail.models.matrices import ArrayRule, check_arrays
from longtail.models.names import Pooling
from longtail.models.parts.consistency import contradiction, reading
from longtail.models.parts.dense_parts import DenseParts
from longtail.models.parts.model_parts import (
    _DUAL_ENCODER_FILE,
    _TRANSFORMER_PREFIX,
    RETRIEVAL_FILE,
)

_FLOATS = ("float32",)
_VECTOR_RULES = {"label_vectors": ArrayRule(_FLOATS, 2)}
_POOLER_RULES = {
    "document_pooler.weight": ArrayRule(_FLOATS, 2),
    "document_pooler.bias": ArrayRule(_FLOATS, 1),
    "label_pooler.weight": ArrayRule(_FLOATS, 2),
    "label_pooler.bias": ArrayRule(_FLOATS, 1),
    "log_scale": ArrayRule(_FLOATS, 1, least=-50, most=50),
    "score_bias": ArrayRule(_FLOATS, 1, least=-1e6, most=1e6),
}


def dense_arrays(dense: DenseParts) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of a dense half, by file name and name; the transformer's lie elsewhere."""
    poolers = {
        name: value.detach().cpu().numpy()
        for name, value in dense.encoder.state_dict().items()
        if not name.startswith(_TRANSFORMER_PREFIX)
    }
    return {
        _DUAL_ENCODER_FILE: poolers,
        RETRIEVAL_FILE: {"label_vectors": dense.label_vectors},
    }


def read_dense(bundle: Bundle, said: EncoderInfo) -> DenseParts:
    """Return the dense half of a bundle that has one."""
    encoder = read_dual_encoder(bundle)
    with reading(bundle, ENCODER_FOLDER):
        tokenizer = load_tokenizer(bundle.encoder_folder)
        check_padding_id(encoder.transformer, tokenizer.pad_token_id or 0, bundle.encoder_folder)
    return DenseParts(
        encoder=encoder,
        tokenizer=tokenizer,
        max_tokens=said.max_tokens,
        document_prefix=said.document_prefix,
        is_tuned=said.is_tuned,
        label_vectors=read_label_vectors(bundle),
    )


def read_label_vectors(bundle: Bundle) -> Float32[np.ndarray, "label dim"]:
    """Return phi_label of every label."""
    with reading(bundle, RETRIEVAL_FILE):
        arrays = bundle.tensors(RETRIEVAL_FILE)
        check_arrays(arrays, _VECTOR_RULES)
    vectors: Float32[np.ndarray, "label dim"] = arrays["label_vectors"]
    return vectors


def read_dual_encoder(bundle: Bundle) -> DualEncoder:
    """Return the dual encoder of a bundle that has one, in evaluation mode."""
    head = _head(bundle)
    with reading(bundle, ENCODER_FOLDER):
        transformer = load_encoder(bundle.encoder_folder)
        check_pooling(transformer, head, bundle.encoder_folder)
    with reading(bundle, _DUAL_ENCODER_FILE):
        arrays = bundle.tensors(_DUAL_ENCODER_FILE)
        check_arrays(arrays, _POOLER_RULES)
        dim, hidden_dim = arrays["document_pooler.weight"].shape
        if hidden_dim != (expected := transformer.config.hidden_size):
            what = f"document_pooler.weight has {hidden_dim} columns, expected {expected}"
            raise BundleCorruptError(contradiction(bundle, _DUAL_ENCODER_FILE, what))
        encoder = DualEncoder(transformer, head, dim)
        weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
        for name in ("log_scale", "score_bias"):
            weights[name] = weights[name].reshape(())  # files hold no array without axes
        encoder.load_state_dict(weights, strict=False)  # the transformer has its own files
    return encoder.eval()


def _head(bundle: Bundle) -> VectorHead:
    # Return how vectors were made in training; a manifest that doesn't say has DEPL's way.
    found = bundle.manifest.training.get("retrieval", {}).get("label_pooling", "mean")
    if found not in get_args(Pooling):
        what = f"label_pooling {found!r}, expected one of {get_args(Pooling)}"
        raise BundleCorruptError(contradiction(bundle, "manifest.json", what))
    said = bundle.manifest.encoder
    assert said is not None  # else there would be no dual encoder
    return VectorHead(said.document_pooling, found, said.activation, said.is_normalized)
