"""The parts of a trained model, and how each lies in a bundle's files.

labels.jsonl               the catalogue
sparse.safetensors         CSR weights, in half precision where that is exact; bias, labels, idf
sparse.json                vocabulary and lemmas
probes.jsonl               texts to try the model on (`models.probes`), where it brings some

The dense half, which a model may lack:

encoder/                   the transformer and its tokenizer, as Hugging Face saves them
dual_encoder.safetensors   both poolers, log_scale, score_bias
retrieval.safetensors      label_vectors: phi_label of every label's pseudo description
classifier.safetensors     weight, bias, labels (those that have a row)
linear.safetensors         the same of the linear scorer, on document vectors as they are
tree.safetensors           the label tree that corrects it, if one does
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import numpy as np
from jaxtyping import Float32
from safetensors.torch import load
from scipy.sparse import csr_array
from transformers import TokenizersBackend

from models.bundle import Bundle, write_bundle
from models.dual_encoder import DualEncoder
from models.encoder import load_tokenizer, load_transformer, window_of
from models.errors import BundleCorruptError
from models.labels import LabelCatalogue
from models.linear import LinearModel, LinearScorer
from models.manifest import FEATURES, Calibration, Ensemble, Input, LabelPooling, Manifest
from models.probes import PROBES_NAME, probes_to_jsonl
from models.sparse import SparseModel, TfidfModel
from models.tree import LabelTree
from models.windows import Windows

RETRIEVAL = "retrieval"
CLASSIFIER = "classifier"
LINEAR = "linear"
SPARSE = "sparse"
HYBRID = "hybrid"
ENSEMBLE = "ensemble"
HYBRID_OF = (RETRIEVAL, CLASSIFIER)
"""The scorers that make `hybrid` (DEPL+c)."""
BLENDABLE = (RETRIEVAL, CLASSIFIER, LINEAR, SPARSE)
"""The scorers that an ensemble may blend."""

_DUAL_ENCODER_FILE = "dual_encoder.safetensors"
RETRIEVAL_FILE = "retrieval.safetensors"
_CLASSIFIER_FILE = "classifier.safetensors"
_LINEAR_FILE = "linear.safetensors"
_TREE_FILE = "tree.safetensors"
_SPARSE_FILE = "sparse.safetensors"
_VOCABULARY_FILE = "sparse.json"
_TRANSFORMER_PREFIX = "transformer."


@dataclass(frozen=True, slots=True)
class DenseParts:
    """What scores texts by their vectors.

    Attributes:
        encoder: The dual encoder.
        tokenizer: Its tokenizer.
        max_tokens: Tokens that it reads of a document.
        label_vectors: phi_label of every label.
        classifier: The dense classifier; None if the run kept none.
        linear: The linear scorer; None if the run trained none.
        windows: How longer documents are read; None: only their beginning is.
    """

    encoder: DualEncoder
    tokenizer: TokenizersBackend
    max_tokens: int
    label_vectors: Float32[np.ndarray, "label dim"]
    classifier: LinearModel | None
    linear: LinearScorer | None = None
    windows: Windows | None = None

    @property
    def most_tokens(self) -> int:
        """Tokens of the longest document of which all is read, special ones included."""
        if self.windows is None:
            return self.max_tokens
        num_special = self.tokenizer.num_special_tokens_to_add()
        return num_special + self.windows.longest(self.max_tokens - num_special)


@dataclass(frozen=True, slots=True)
class ModelParts:
    """Everything that scoring needs.

    Attributes:
        input: What the model reads.
        catalogue: The labels.
        sparse: The sparse model.
        dense: The dense half; None if the run trained none.
        has_hybrid: Whether `hybrid` is among the scorers, where there is what it is made of.
        calibrations: What makes log-odds of the scores of a scorer.
        ensemble: The weights of the scorer `ensemble`; None if there is none.
    """

    input: Input
    catalogue: LabelCatalogue
    sparse: SparseModel
    dense: DenseParts | None
    has_hybrid: bool = False
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)
    ensemble: Ensemble | None = None

    @property
    def scorers(self) -> tuple[str, ...]:
        """Names of the scorers that these parts make."""
        has_classifier = self.dense is not None and self.dense.classifier is not None
        there = {
            RETRIEVAL: self.dense is not None,
            CLASSIFIER: has_classifier,
            HYBRID: has_classifier and self.has_hybrid,
            LINEAR: self.dense is not None and self.dense.linear is not None,
            SPARSE: True,
            ENSEMBLE: self.ensemble is not None,
        }
        return tuple(name for name, is_there in there.items() if is_there)


def write_parts(
    folder: Path,
    parts: ModelParts,
    manifest: Manifest,
    scratch: Path,
    probes: Sequence[str] = (),
) -> Manifest:
    """Write a bundle of these parts (see `models.bundle.write_bundle`).

    Args:
        folder: The bundle's folder; it must not exist.
        parts: What to write.
        manifest: All but its files and digest.
        scratch: A folder in which the encoder is saved first, if there is one.
        probes: Texts that it brings along to be tried on.
    """
    texts = {_VOCABULARY_FILE: parts.sparse.tfidf.to_json()}
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


def tensors_of(parts: ModelParts) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of these parts, by file name and name; the transformer's lie elsewhere."""
    sparse = {_SPARSE_FILE: _sparse_arrays(parts.sparse)}
    return sparse if parts.dense is None else sparse | _dense_arrays(parts.dense)


def read_parts(bundle: Bundle) -> ModelParts:
    """Return the parts of a verified bundle.

    Raises:
        BundleCorruptError: The parts contradict each other or the manifest.
    """
    manifest, encoder = bundle.manifest, bundle.manifest.encoder
    try:
        parts = ModelParts(
            input=manifest.input,
            catalogue=bundle.catalogue,
            sparse=read_sparse(bundle),
            dense=None if encoder is None else _read_dense(bundle, encoder.max_tokens),
            has_hybrid=HYBRID in manifest.scorers,
            calibrations=manifest.calibrations,
            ensemble=manifest.ensemble,
        )
    except (KeyError, TypeError, ValueError, RuntimeError, OSError) as error:
        raise BundleCorruptError(_contradiction(bundle, "its files", repr(error))) from error
    _check(bundle, parts)
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
        arrays[_CLASSIFIER_FILE] = _arrays_of(dense.classifier)
    if dense.linear is not None:
        arrays[_LINEAR_FILE] = _arrays_of(dense.linear.model)
        if dense.linear.tree is not None:
            arrays[_TREE_FILE] = dense.linear.tree.to_arrays()
    return arrays


def _arrays_of(model: LinearModel) -> dict[str, np.ndarray]:
    return {"weight": model.weight, "bias": model.bias, "labels": model.labels}


def _read_dense(bundle: Bundle, max_tokens: int) -> DenseParts:
    """Return the dense half of a bundle that has one."""
    has_classifier = CLASSIFIER in bundle.manifest.scorers
    has_linear = LINEAR in bundle.manifest.scorers
    return DenseParts(
        encoder=read_dual_encoder(bundle),
        tokenizer=load_tokenizer(bundle.encoder_folder),
        max_tokens=max_tokens,
        label_vectors=bundle.tensors(RETRIEVAL_FILE)["label_vectors"],
        classifier=LinearModel(**bundle.tensors(_CLASSIFIER_FILE)) if has_classifier else None,
        linear=_read_linear(bundle) if has_linear else None,
        windows=bundle.manifest.windows,
    )


def read_dual_encoder(bundle: Bundle) -> DualEncoder:
    """Return the dual encoder of a bundle that has one, in evaluation mode.

    Raises:
        BundleCorruptError: The encoder and its poolers don't belong together, or the manifest tells
            of another pooling of labels than there is.
    """
    encoder = DualEncoder(load_transformer(bundle.encoder_folder), _label_pooling(bundle))
    poolers = load((bundle.folder / _DUAL_ENCODER_FILE).read_bytes())
    missing, unknown = encoder.load_state_dict(poolers, strict=False)
    missing = [name for name in missing if not name.startswith(_TRANSFORMER_PREFIX)]
    if missing or unknown:
        raise BundleCorruptError(
            _contradiction(bundle, _DUAL_ENCODER_FILE, f"arrays {missing + unknown}")
        )
    return encoder.eval()


def _label_pooling(bundle: Bundle) -> LabelPooling:
    """Return how labels were pooled in training; a manifest that doesn't say has the mean.

    Raises:
        BundleCorruptError: It tells of another pooling than there is.
    """
    found = bundle.manifest.training.get("retrieval", {}).get("label_pooling", "mean")
    if found not in get_args(LabelPooling):
        what = f"label_pooling {found!r}, wanted one of {get_args(LabelPooling)}"
        raise BundleCorruptError(_contradiction(bundle, "manifest.json", what))
    pooling: LabelPooling = found
    return pooling


def _read_linear(bundle: Bundle) -> LinearScorer:
    """Return the linear scorer of a bundle that has one.

    Raises:
        BundleCorruptError: Its tree is no tree.
    """
    correction = bundle.manifest.linear_correction
    if correction is None:
        what = f"scorer {LINEAR!r} without linear_correction"
        raise BundleCorruptError(_contradiction(bundle, "manifest.json", what))
    tree = LabelTree.from_arrays(bundle.tensors(_TREE_FILE)) if correction == "tree" else None
    return LinearScorer(LinearModel(**bundle.tensors(_LINEAR_FILE)), correction, tree)


def _sparse_arrays(model: SparseModel) -> dict[str, np.ndarray]:
    return {
        "data": _shortest(model.weights.data),
        "indices": model.weights.indices.astype(np.int32),
        "indptr": model.weights.indptr.astype(np.int64),
        "bias": model.bias,
        "labels": model.labels,
        "idf": model.tfidf.idf,
    }


def _shortest(values: Float32[np.ndarray, "entry"]) -> np.ndarray:
    """Return the values in half precision where that loses nothing."""
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16)
    return halves if np.array_equal(halves, values) else values


def read_sparse(bundle: Bundle) -> SparseModel:
    """Return the sparse model of a verified bundle, without loading its encoder."""
    arrays = bundle.tensors(_SPARSE_FILE)
    tfidf = TfidfModel.from_json(bundle.text(_VOCABULARY_FILE), arrays["idf"])
    weights = csr_array(
        (arrays["data"].astype(np.float32, copy=False), arrays["indices"], arrays["indptr"]),
        shape=(len(arrays["bias"]), len(tfidf.tokens)),
    )
    weights.check_format()
    return SparseModel(tfidf, weights, arrays["bias"], arrays["labels"])


def _check(bundle: Bundle, parts: ModelParts) -> None:
    """Refuse parts whose sizes contradict the catalogue, the encoder or the manifest.

    Raises:
        BundleCorruptError: They do.
    """
    rows = (parts.sparse.weights.shape[0], len(parts.sparse.bias))
    _check_rows(bundle, _SPARSE_FILE, parts.sparse.labels, rows)
    if parts.dense is not None:
        _check_dense(bundle, parts.dense)
        if parts.dense.linear is not None:
            _check_linear(bundle, parts.dense.linear, parts.dense.encoder.dim)
    _check_scorers(bundle, parts)
    if parts.input == FEATURES and parts.dense is not None:
        said = f"input {parts.input!r} with an encoder, which reads texts"
        raise BundleCorruptError(_contradiction(bundle, "manifest.json", said))


def _check_scorers(bundle: Bundle, parts: ModelParts) -> None:
    """Refuse a manifest that tells of other scorers than the parts make.

    Raises:
        BundleCorruptError: It does.
    """
    if parts.scorers != bundle.manifest.scorers:
        said = f"scorers {bundle.manifest.scorers}, the files make {parts.scorers}"
        raise BundleCorruptError(_contradiction(bundle, "manifest.json", said))
    if bundle.manifest.default_scorer not in parts.scorers:
        said = f"default_scorer {bundle.manifest.default_scorer!r}, wanted one of {parts.scorers}"
        raise BundleCorruptError(_contradiction(bundle, "manifest.json", said))
    odd = set(parts.calibrations).difference(parts.scorers)
    if parts.ensemble is not None:
        odd |= set(parts.ensemble.weights).difference(BLENDABLE)
    if odd:
        said = f"calibrations or ensemble weights of {sorted(odd)}, wanted those of scorers"
        raise BundleCorruptError(_contradiction(bundle, "manifest.json", said))
    if LINEAR not in parts.scorers and bundle.manifest.linear_correction is not None:
        said = f"linear_correction {bundle.manifest.linear_correction!r} without scorer {LINEAR!r}"
        raise BundleCorruptError(_contradiction(bundle, "manifest.json", said))


def _check_dense(bundle: Bundle, dense: DenseParts) -> None:
    """Refuse a dense half whose sizes contradict each other, the catalogue or the manifest.

    Raises:
        BundleCorruptError: They do.
    """
    num_labels, dim = len(bundle.catalogue), dense.encoder.dim
    if dense.label_vectors.shape != (num_labels, dim):
        shapes = f"label_vectors {dense.label_vectors.shape}, wanted {(num_labels, dim)}"
        raise BundleCorruptError(_contradiction(bundle, RETRIEVAL_FILE, shapes))
    if dense.classifier is not None:
        _check_model(bundle, _CLASSIFIER_FILE, dense.classifier, dim)
    said = bundle.manifest.encoder
    assert said is not None  # else there would be no dense half
    if said.dim != dim:
        what = f"dim {said.dim}, the encoder has {dim}"
        raise BundleCorruptError(_contradiction(bundle, "manifest.json", what))
    window = window_of(dense.encoder.transformer)
    if not 1 <= dense.max_tokens <= window:
        what = f"max_tokens {dense.max_tokens}, the encoder has {window} positions"
        raise BundleCorruptError(_contradiction(bundle, "manifest.json", what))


def _check_linear(bundle: Bundle, linear: LinearScorer, dim: int) -> None:
    """Refuse a linear scorer whose parts contradict each other or the catalogue.

    Raises:
        BundleCorruptError: They do.
    """
    _check_model(bundle, _LINEAR_FILE, linear.model, dim)
    if linear.tree is not None:
        # Labels that were added later are no leaves: p_n of them is 0, and they have no row here.
        num_labels, least = linear.tree.num_labels, int(linear.model.labels.max(initial=-1)) + 1
        most, tree_dim = len(bundle.catalogue), len(linear.tree.mean)
        if not least <= num_labels <= most or tree_dim != dim:
            what = (
                f"a tree of (labels, dimensions) {(num_labels, tree_dim)}, wanted {least} to "
                f"{most}, and {dim}"
            )
            raise BundleCorruptError(_contradiction(bundle, _TREE_FILE, what))
    counts = bundle.catalogue.training_counts[linear.model.labels]
    if linear.correction == "prior" and not counts.all():
        what = "correction 'prior' with labels that no training document carries"
        raise BundleCorruptError(_contradiction(bundle, _LINEAR_FILE, what))


def _check_model(bundle: Bundle, name: str, model: LinearModel, dim: int) -> None:
    """Refuse label weights of other dimensions than the encoder, or of other labels.

    Raises:
        BundleCorruptError: They are.
    """
    if model.weight.shape[1:] != (dim,):
        raise BundleCorruptError(_contradiction(bundle, name, f"{dim} dimensions wanted"))
    _check_rows(bundle, name, model.labels, (len(model.weight), len(model.bias)))


def _check_rows(bundle: Bundle, name: str, labels: np.ndarray, rows: tuple[int, int]) -> None:
    is_rising = bool((np.diff(labels) > 0).all())
    least = 0 if bundle.shard is not None else 1  # a scorer may know no label of a shard
    is_within = labels.min(initial=0) >= 0 and labels.max(initial=0) < len(bundle.catalogue)
    if len(labels) < least or not is_rising or not is_within:
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
