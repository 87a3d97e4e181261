"""The parts of a model on disk: from and to the files of a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np
from jaxtyping import Float32
from safetensors.torch import load
from scipy.sparse import csr_array

from models.bundle.bundle import Bundle, write_bundle
from models.bundle.manifest import EncoderInfo, Manifest
from models.bundle.warmup_texts import PROBES_NAME, probes_to_jsonl
from models.encoders.check import check_pooling
from models.encoders.dual_encoder import DualEncoder
from models.encoders.pretrained import load_tokenizer, load_transformer
from models.encoders.vector_head import VectorHead
from models.errors import BundleCorruptError
from models.label_tree.tree import LabelTree
from models.memory.memory import NeighbourMemory
from models.names import CASCADE, CLASSIFIER, HYBRID, LINEAR, NAMES, NEIGHBOURS, Pooling
from models.parts.consistency import check_parts, contradiction
from models.parts.model_parts import (
    _DUAL_ENCODER_FILE,
    _NEIGHBOUR_IDS_FILE,
    _TRANSFORMER_PREFIX,
    _TREE_FILE,
    _VOCABULARY_FILE,
    CLASSIFIER_FILE,
    LINEAR_FILE,
    NEIGHBOURS_FILE,
    RETRIEVAL_FILE,
    SPARSE_FILE,
    DenseParts,
    ModelParts,
)
from models.parts.name_storage import (
    NAMES_FILE,
    arrays_of_names,
    read_names,
    texts_of_names,
)
from models.scorers.aims import AIMS_NAME, aims_from_json, aims_to_json
from models.scorers.cascade import CASCADE_NAME, CascadeRule
from models.scorers.linear import LinearModel, LinearScorer
from models.scorers.sparse import SparseModel
from models.scorers.tfidf import TfidfModel


def write_parts(
    folder: Path,
    parts: ModelParts,
    manifest: Manifest,
    scratch: Path,
    probes: Sequence[str] = (),
) -> Manifest:
    """Write a bundle of these parts (see `models.bundle.bundle.write_bundle`).

    Args:
        folder: The bundle's folder; it must not exist.
        parts: What to write.
        manifest: All but its files and digest.
        scratch: A folder in which the encoder is saved first, if there is one.
        probes: Texts that it brings along to be tried on.
    """
    texts = texts_of(parts)
    if probes:
        texts[PROBES_NAME] = probes_to_jsonl(probes)
    if parts.dense is not None:
        parts.dense.encoder.transformer.save_pretrained(scratch)
        parts.dense.tokenizer.save_pretrained(scratch)
    return write_bundle(
        folder,
        manifest=manifest,
        catalogue=parts.catalogue,
        tensors=tensors_of(parts),
        texts=texts,
        encoder_folder=None if parts.dense is None else scratch,
    )


def texts_of(parts: ModelParts) -> dict[str, str]:
    """Return the text files of these parts, by name; the catalogue lies elsewhere."""
    texts = {_VOCABULARY_FILE: parts.sparse.tfidf.to_json()}
    if parts.names is not None:
        texts |= texts_of_names(parts.names)
    if parts.neighbours is not None:
        texts[_NEIGHBOUR_IDS_FILE] = parts.neighbours.ids_to_json()
    if parts.aims:
        texts[AIMS_NAME] = aims_to_json(parts.aims)
    if parts.cascade is not None:
        texts[CASCADE_NAME] = parts.cascade.to_json()
    return texts


def tensors_of(parts: ModelParts) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of these parts, by file name and name; the transformer's lie elsewhere."""
    arrays = {SPARSE_FILE: arrays_of_sparse(parts.sparse)}
    if parts.names is not None:
        arrays[NAMES_FILE] = arrays_of_names(parts.names)
    if parts.neighbours is not None:
        remembered = parts.neighbours.to_arrays()
        arrays[NEIGHBOURS_FILE] = remembered | {"data": _shortest(remembered["data"])}
    return arrays if parts.dense is None else arrays | _dense_arrays(parts.dense)


def read_parts(bundle: Bundle) -> ModelParts:
    """Return the parts of a verified bundle.

    Raises:
        BundleCorruptError: The parts contradict each other or the manifest.
    """
    manifest, encoder = bundle.manifest, bundle.manifest.encoder
    try:
        sparse = read_sparse(bundle)
        parts = ModelParts(
            catalogue=bundle.catalogue,
            sparse=sparse,
            dense=None if encoder is None else _read_dense(bundle, encoder),
            names=read_names(bundle) if NAMES in manifest.scorers else None,
            has_hybrid=HYBRID in manifest.scorers,
            calibrations=manifest.calibrations,
            blends=manifest.blends,
            neighbours=read_neighbours(bundle, sparse),
            aims=aims_from_json(bundle.text(AIMS_NAME)) if AIMS_NAME in manifest.files else {},
            cascade=_read_cascade(bundle),
        )
    except (KeyError, TypeError, ValueError, RuntimeError, OSError) as error:
        raise BundleCorruptError(contradiction(bundle, "its files", repr(error))) from error
    check_parts(bundle, parts)
    return parts


def _dense_arrays(dense: DenseParts) -> dict[str, dict[str, np.ndarray]]:
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


def _read_dense(bundle: Bundle, said: EncoderInfo) -> DenseParts:
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


def read_neighbours(bundle: Bundle, sparse: SparseModel) -> NeighbourMemory | None:
    """Return the documents that a bundle remembers; None where it has no such scorer.

    Raises:
        BundleCorruptError: They contradict each other, the vocabulary or the catalogue.
    """
    if NEIGHBOURS not in bundle.manifest.scorers:
        return None
    try:
        return NeighbourMemory.from_arrays(
            bundle.tensors(NEIGHBOURS_FILE),
            bundle.text(_NEIGHBOUR_IDS_FILE),
            len(sparse.tfidf.tokens),
            len(bundle.catalogue),
        )
    except (BundleCorruptError, ValueError) as error:
        raise BundleCorruptError(contradiction(bundle, NEIGHBOURS_FILE, str(error))) from error


def _read_cascade(bundle: Bundle) -> CascadeRule | None:
    """Return which texts `fast` answers in `cascade`; None where there is no such scorer.

    Raises:
        BundleCorruptError: It is no rule.
    """
    if CASCADE not in bundle.manifest.scorers:
        return None
    try:
        return CascadeRule.from_json(bundle.text(CASCADE_NAME))
    except (TypeError, ValueError) as error:
        raise BundleCorruptError(contradiction(bundle, CASCADE_NAME, str(error))) from error


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


def arrays_of_sparse(model: SparseModel) -> dict[str, np.ndarray]:
    """Return the arrays of a sparse model."""
    return {
        "data": _shortest(model.weights.data),
        "indices": model.weights.indices.astype(np.int32),
        "indptr": model.weights.indptr.astype(np.int64),
        "bias": model.bias,
        "labels": model.labels,
        "idf": model.tfidf.idf,
    }


def _shortest(values: Float32[np.ndarray, entry]) -> np.ndarray:
    """Return the values in half precision where that loses nothing."""
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16)
    return halves if np.array_equal(halves, values) else values


def read_sparse(bundle: Bundle) -> SparseModel:
    """Return the sparse model of a verified bundle, without loading its encoder.

    Raises:
        BundleCorruptError: A weight or bias is not finite.
    """
    arrays = bundle.tensors(SPARSE_FILE)
    for name in ("data", "bias", "idf"):
        if not np.isfinite(arrays[name]).all():
            what = f"{name} has values that are not finite"
            raise BundleCorruptError(contradiction(bundle, SPARSE_FILE, what))
    tfidf = TfidfModel.from_json(bundle.text(_VOCABULARY_FILE), arrays["idf"])
    weights = csr_array(
        (arrays["data"].astype(np.float32, copy=False), arrays["indices"], arrays["indptr"]),
        shape=(len(arrays["bias"]), len(tfidf.tokens)),
    )
    weights.check_format()
    return SparseModel(tfidf, weights, arrays["bias"], arrays["labels"])
