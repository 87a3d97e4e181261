"""The dense half of a model on disk; whoever imports this imports PyTorch."""

from __future__ import annotations

from typing import get_args

import numpy as np
from safetensors.torch import load

from models.bundle.bundle import Bundle
from models.bundle.manifest import EncoderInfo
from models.encoders.check import check_pooling
from models.encoders.dual_encoder import DualEncoder
from models.encoders.pretrained import load_tokenizer, load_transformer
from models.encoders.vector_head import VectorHead
from models.errors import BundleCorruptError
from models.label_tree.tree import LabelTree
from models.names import CLASSIFIER, LINEAR, Pooling
from models.parts.consistency import contradiction
from models.parts.dense_parts import DenseParts
from models.parts.model_parts import (
    _DUAL_ENCODER_FILE,
    _TRANSFORMER_PREFIX,
    _TREE_FILE,
    CLASSIFIER_FILE,
    LINEAR_FILE,
    RETRIEVAL_FILE,
)
from models.scorers.linear import LinearModel, LinearScorer


def dense_arrays(dense: DenseParts) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of a dense half, by file name and name; the transformer's lie elsewhere."""
    poolers = {
        name: value.detach().cpu().numpy()
        for name, value in dense.encoder.state_dict().items()
        if not name.startswith(_TRANSFORMER_PREFIX)
    }
    arrays = {
        _DUAL_ENCODER_FILE: poolers,
        RETRIEVAL_FILE: {"label_vectors": dense.label_vectors},
    }
    if dense.classifier is not None:
        arrays[CLASSIFIER_FILE] = _arrays_of(dense.classifier)
    if dense.linear is not None:
        arrays[LINEAR_FILE] = _arrays_of(dense.linear.model)
        if dense.linear.tree is not None:
            arrays[_TREE_FILE] = dense.linear.tree.to_arrays()
    return arrays


def _arrays_of(model: LinearModel) -> dict[str, np.ndarray]:
    return {"weight": model.weight, "bias": model.bias, "labels": model.labels}


def read_dense(bundle: Bundle, said: EncoderInfo) -> DenseParts:
    """Return the dense half of a bundle that has one."""
    has_classifier = CLASSIFIER in bundle.manifest.scorers
    has_linear = LINEAR in bundle.manifest.scorers
    return DenseParts(
        encoder=read_dual_encoder(bundle),
        tokenizer=load_tokenizer(bundle.encoder_folder),
        max_tokens=said.max_tokens,
        document_prefix=said.document_prefix,
        label_vectors=bundle.tensors(RETRIEVAL_FILE)["label_vectors"],
        classifier=LinearModel(**bundle.tensors(CLASSIFIER_FILE)) if has_classifier else None,
        linear=read_linear(bundle) if has_linear else None,
    )


def read_dual_encoder(bundle: Bundle) -> DualEncoder:
    """Return the dual encoder of a bundle that has one, in evaluation mode.

    Raises:
        BundleCorruptError: The encoder and its poolers don't belong together, or the manifest tells
            of another pooling of labels than there is.
        ConfigError: The encoder can't be used, or not with this pooling.
    """
    transformer, head = load_transformer(bundle.encoder_folder), _head(bundle)
    check_pooling(transformer, head, bundle.encoder_folder)
    poolers = load((bundle.folder / _DUAL_ENCODER_FILE).read_bytes())
    weight = poolers.get("document_pooler.weight")
    encoder = DualEncoder(transformer, head, dim=None if weight is None else len(weight))
    missing, unknown = encoder.load_state_dict(poolers, strict=False)
    missing = [name for name in missing if not name.startswith(_TRANSFORMER_PREFIX)]
    if missing or unknown:
        raise BundleCorruptError(
            contradiction(bundle, _DUAL_ENCODER_FILE, f"arrays {missing + unknown}")
        )
    return encoder.eval()


def _head(bundle: Bundle) -> VectorHead:
    """Return how vectors were made in training; a manifest that doesn't say has DEPL's way.

    Raises:
        BundleCorruptError: It tells of another pooling than there is.
    """
    found = bundle.manifest.training.get("retrieval", {}).get("label_pooling", "mean")
    if found not in get_args(Pooling):
        what = f"label_pooling {found!r}, expected one of {get_args(Pooling)}"
        raise BundleCorruptError(contradiction(bundle, "manifest.json", what))
    said = bundle.manifest.encoder
    assert said is not None  # else there would be no dual encoder
    return VectorHead(said.document_pooling, found, said.activation, said.is_normalized)


def read_linear(bundle: Bundle) -> LinearScorer:
    """Return the linear scorer of a bundle that has one.

    Raises:
        BundleCorruptError: Its tree is no tree.
    """
    correction = bundle.manifest.linear_correction
    if correction is None:
        what = f"scorer {LINEAR!r} without linear_correction"
        raise BundleCorruptError(contradiction(bundle, "manifest.json", what))
    tree = LabelTree.from_arrays(bundle.tensors(_TREE_FILE)) if correction == "tree" else None
    return LinearScorer(LinearModel(**bundle.tensors(LINEAR_FILE)), correction, tree)
