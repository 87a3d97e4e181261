"""The parts of a trained model, and how each lies in a bundle's files.

labels.jsonl               the catalogue
encoder/                   the transformer and its tokenizer, as Hugging Face saves them
dual_encoder.safetensors   both poolers, log_scale, score_bias
retrieval.safetensors      label_vectors: phi_label of every label's pseudo description
classifier.safetensors     weight, bias, labels (those that have a row)
sparse.safetensors         CSR weights, bias, labels, idf
sparse.json                vocabulary and lemmas
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64
from safetensors.torch import load
from scipy.sparse import csr_array
from transformers import TokenizersBackend

from models.bundle import Bundle, write_bundle
from models.dual_encoder import DualEncoder
from models.encoder import load_tokenizer, load_transformer, window_of
from models.errors import BundleCorruptError
from models.labels import LabelCatalogue
from models.manifest import Manifest
from models.sparse import SparseModel, TfidfModel

RETRIEVAL = "retrieval"
CLASSIFIER = "classifier"
SPARSE = "sparse"

_DUAL_ENCODER_FILE = "dual_encoder.safetensors"
_RETRIEVAL_FILE = "retrieval.safetensors"
_CLASSIFIER_FILE = "classifier.safetensors"
_SPARSE_FILE = "sparse.safetensors"
_VOCABULARY_FILE = "sparse.json"
_TRANSFORMER_PREFIX = "transformer."


@dataclass(frozen=True, slots=True)
class LinearModel:
    """Linear scores of labels over document vectors: <phi_doc(x), w_l> + b_l.

    Attributes:
        weight: One row w_l for each label that it can score.
        bias: b_l of each row.
        labels: The label index of each row, rising.
    """

    weight: Float32[np.ndarray, "covered dim"]
    bias: Float32[np.ndarray, "covered"]
    labels: Int64[np.ndarray, "covered"]


@dataclass(frozen=True, slots=True)
class ModelParts:
    """Everything that scoring needs.

    Attributes:
        catalogue: The labels.
        encoder: The dual encoder.
        tokenizer: Its tokenizer.
        max_tokens: Tokens that it reads of a document.
        label_vectors: phi_label of every label.
        classifier: The dense classifier; None if the run had none.
        sparse: The sparse model.
    """

    catalogue: LabelCatalogue
    encoder: DualEncoder
    tokenizer: TokenizersBackend
    max_tokens: int
    label_vectors: Float32[np.ndarray, "label dim"]
    classifier: LinearModel | None
    sparse: SparseModel

    @property
    def scorers(self) -> tuple[str, ...]:
        """Names of the scorers that these parts make."""
        dense = (RETRIEVAL,) if self.classifier is None else (RETRIEVAL, CLASSIFIER)
        return (*dense, SPARSE)


def write_parts(folder: Path, parts: ModelParts, manifest: Manifest, scratch: Path) -> Manifest:
    """Write a bundle of these parts (see `models.bundle.write_bundle`).

    Args:
        folder: The bundle's folder; it must not exist.
        parts: What to write.
        manifest: All but its files and digest.
        scratch: A folder in which the encoder is saved first.
    """
    parts.encoder.transformer.save_pretrained(scratch)
    parts.tokenizer.save_pretrained(scratch)
    tensors = {
        _DUAL_ENCODER_FILE: {
            name: value.detach().cpu().numpy()
            for name, value in parts.encoder.state_dict().items()
            if not name.startswith(_TRANSFORMER_PREFIX)
        },
        _RETRIEVAL_FILE: {"label_vectors": parts.label_vectors},
        _SPARSE_FILE: _sparse_arrays(parts.sparse),
    }
    if parts.classifier is not None:
        model = parts.classifier
        tensors[_CLASSIFIER_FILE] = {
            "weight": model.weight,
            "bias": model.bias,
            "labels": model.labels,
        }
    return write_bundle(
        folder,
        manifest=manifest,
        catalogue=parts.catalogue,
        tensors=tensors,
        texts={_VOCABULARY_FILE: parts.sparse.tfidf.to_json()},
        encoder_folder=scratch,
    )


def read_parts(bundle: Bundle) -> ModelParts:
    """Return the parts of a verified bundle.

    Raises:
        BundleCorruptError: The parts contradict each other or the manifest.
    """
    try:
        encoder = DualEncoder(load_transformer(bundle.encoder_folder))
        poolers = load((bundle.folder / _DUAL_ENCODER_FILE).read_bytes())
        missing, unknown = encoder.load_state_dict(poolers, strict=False)
        missing = [name for name in missing if not name.startswith(_TRANSFORMER_PREFIX)]
        if missing or unknown:
            raise BundleCorruptError(
                _contradiction(bundle, _DUAL_ENCODER_FILE, f"arrays {missing + unknown}")
            )
        has_classifier = CLASSIFIER in bundle.manifest.scorers
        parts = ModelParts(
            catalogue=bundle.catalogue,
            encoder=encoder.eval(),
            tokenizer=load_tokenizer(bundle.encoder_folder),
            max_tokens=bundle.manifest.encoder.max_tokens,
            label_vectors=bundle.tensors(_RETRIEVAL_FILE)["label_vectors"],
            classifier=LinearModel(**bundle.tensors(_CLASSIFIER_FILE)) if has_classifier else None,
            sparse=read_sparse(bundle),
        )
    except (KeyError, TypeError, ValueError, RuntimeError, OSError) as error:
        raise BundleCorruptError(_contradiction(bundle, "its files", repr(error))) from error
    _check(bundle, parts)
    return parts


def _sparse_arrays(model: SparseModel) -> dict[str, np.ndarray]:
    return {
        "data": model.weights.data,
        "indices": model.weights.indices.astype(np.int32),
        "indptr": model.weights.indptr.astype(np.int64),
        "bias": model.bias,
        "labels": model.labels,
        "idf": model.tfidf.idf,
    }


def read_sparse(bundle: Bundle) -> SparseModel:
    """Return the sparse model of a verified bundle, without loading its encoder."""
    arrays = bundle.tensors(_SPARSE_FILE)
    tfidf = TfidfModel.from_json(bundle.text(_VOCABULARY_FILE), arrays["idf"])
    weights = csr_array(
        (arrays["data"], arrays["indices"], arrays["indptr"]),
        shape=(len(arrays["bias"]), len(tfidf.tokens)),
    )
    weights.check_format()
    return SparseModel(tfidf, weights, arrays["bias"], arrays["labels"])


def _check(bundle: Bundle, parts: ModelParts) -> None:
    """Refuse parts whose sizes contradict the catalogue, the encoder or the manifest.

    Raises:
        BundleCorruptError: They do.
    """
    num_labels, dim = len(parts.catalogue), parts.encoder.dim
    if parts.label_vectors.shape != (num_labels, dim):
        shapes = f"label_vectors {parts.label_vectors.shape}, wanted {(num_labels, dim)}"
        raise BundleCorruptError(_contradiction(bundle, _RETRIEVAL_FILE, shapes))
    if parts.classifier is not None:
        rows = (parts.classifier.weight.shape[0], len(parts.classifier.bias))
        if parts.classifier.weight.shape[1] != dim:
            raise BundleCorruptError(
                _contradiction(bundle, _CLASSIFIER_FILE, f"{dim} dimensions wanted")
            )
        _check_rows(bundle, _CLASSIFIER_FILE, parts.classifier.labels, rows)
    rows = (parts.sparse.weights.shape[0], len(parts.sparse.bias))
    _check_rows(bundle, _SPARSE_FILE, parts.sparse.labels, rows)
    _check_manifest(bundle, parts)


def _check_manifest(bundle: Bundle, parts: ModelParts) -> None:
    """Refuse a manifest that says of the parts what is not so.

    Raises:
        BundleCorruptError: It does.
    """
    if bundle.manifest.encoder.dim != parts.encoder.dim:
        said = f"dim {bundle.manifest.encoder.dim}, the encoder has {parts.encoder.dim}"
        raise BundleCorruptError(_contradiction(bundle, "manifest.json", said))
    if parts.scorers != bundle.manifest.scorers:
        said = f"scorers {bundle.manifest.scorers}, the files make {parts.scorers}"
        raise BundleCorruptError(_contradiction(bundle, "manifest.json", said))
    if bundle.manifest.default_scorer not in parts.scorers:
        said = f"default_scorer {bundle.manifest.default_scorer!r}, wanted one of {parts.scorers}"
        raise BundleCorruptError(_contradiction(bundle, "manifest.json", said))
    window = window_of(parts.encoder.transformer)
    if not 1 <= parts.max_tokens <= window:
        said = f"max_tokens {parts.max_tokens}, the encoder has {window} positions"
        raise BundleCorruptError(_contradiction(bundle, "manifest.json", said))


def _check_rows(bundle: Bundle, name: str, labels: np.ndarray, rows: tuple[int, int]) -> None:
    is_rising = len(labels) > 0 and bool((np.diff(labels) > 0).all())
    if not is_rising or labels[0] < 0 or labels[-1] >= len(bundle.catalogue):
        raise BundleCorruptError(
            _contradiction(bundle, name, "labels that are not rising rows of the catalogue")
        )
    if rows != (len(labels), len(labels)):
        raise BundleCorruptError(
            _contradiction(bundle, name, f"{rows} rows for {len(labels)} labels")
        )


def _contradiction(bundle: Bundle, name: str, what: str) -> str:
    return (
        f"bundle {bundle.folder.name!r}: {name} can't be used: {json.dumps(what)[1:-1]}; "
        "train again with 'longtail train'"
    )
