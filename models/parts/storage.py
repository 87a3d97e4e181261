"""The parts of a model on disk: from and to the files of a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32

from longtail.models.bundle.bundle import Bundle, write_bundle
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.trained_on import TrainedOn
from longtail.models.bundle.warmup_texts import PROBES_NAME, probes_to_jsonl
from longtail.models.errors import BundleCorruptError
from longtail.models.extras import require
from longtail.models.matrices import ArrayRule, check_arrays, stored_csr
from longtail.models.memory.memory import NeighbourMemory
from longtail.models.names import HYBRID, NAMES, NEIGHBOURS, AimName
from longtail.models.parts.consistency import check_parts, contradiction, reading
from longtail.models.parts.model_parts import (
    _NEIGHBOUR_IDS_FILE,
    _VOCABULARY_FILE,
    NEIGHBOURS_FILE,
    SPARSE_FILE,
    ModelParts,
)
from longtail.models.parts.name_storage import (
    NAMES_FILE,
    arrays_of_names,
    read_names,
    texts_of_names,
)
from longtail.models.scorers.aims import AIMS_NAME, Aim, aims_from_json, aims_to_json
from longtail.models.scorers.familiar_range import FAMILIAR_NAME, FamiliarRange
from longtail.models.scorers.promises import (
    PROMISES_NAME,
    Promise,
    promises_from_json,
    promises_to_json,
)
from longtail.models.scorers.sparse import SparseModel
from longtail.models.scorers.tfidf import TfidfModel

if TYPE_CHECKING:
    from longtail.models.parts.dense_parts import DenseParts

_SPARSE_RULES = {
    "data": ArrayRule(("float16", "float32"), 1),
    "indices": ArrayRule(("int32", "int64"), 1),
    "indptr": ArrayRule(("int32", "int64"), 1),
    "bias": ArrayRule(("float32",), 1),
    "labels": ArrayRule(("int64",), 1, least=0),
    "idf": ArrayRule(("float32",), 1),
}


def write_parts(
    folder: Path,
    parts: ModelParts,
    manifest: Manifest,
    scratch: Path,
    probes: Sequence[str] = (),
    record: TrainedOn | None = None,
) -> Manifest:
    """Write a bundle of these parts (see `longtail.models.bundle.bundle.write_bundle`).

    Args:
        folder: The bundle's folder; it must not exist.
        parts: What to write.
        manifest: All but its files and digest.
        scratch: A folder in which the encoder is saved first, if there is one.
        probes: Texts that it brings along to be tried on.
        record: Of the documents that the model was trained on; None: none is written.
    """
    texts, tensors = texts_of(parts), tensors_of(parts)
    if record is not None:
        texts, tensors = texts | record.texts(), tensors | record.tensors()
    if probes:
        texts[PROBES_NAME] = probes_to_jsonl(probes)
    if parts.dense is not None:
        parts.dense.encoder.transformer.save_pretrained(scratch)
        parts.dense.tokenizer.save_pretrained(scratch)
    return write_bundle(
        folder,
        manifest=manifest,
        catalogue=parts.catalogue,
        tensors=tensors,
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
    if parts.familiar is not None:
        texts[FAMILIAR_NAME] = parts.familiar.to_json()
    if parts.promises:
        texts[PROMISES_NAME] = promises_to_json(parts.promises)
    return texts


def tensors_of(parts: ModelParts) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of these parts, by file name and name; the transformer's lie elsewhere."""
    arrays = {SPARSE_FILE: arrays_of_sparse(parts.sparse)}
    if parts.names is not None:
        arrays[NAMES_FILE] = arrays_of_names(parts.names)
    if parts.neighbours is not None:
        remembered = parts.neighbours.to_arrays()
        arrays[NEIGHBOURS_FILE] = remembered | {"data": _shortest(remembered["data"])}
    if parts.dense is None:
        return arrays
    from longtail.models.parts.dense_storage import dense_arrays  # brings PyTorch

    return arrays | dense_arrays(parts.dense)


def read_parts(bundle: Bundle) -> ModelParts:
    """Return the parts of a verified bundle.

    Raises:
        BundleCorruptError: The parts contradict each other or the manifest.
        ConfigError: It has an encoder, and the libraries of one are not installed.
    """
    manifest = bundle.manifest
    if manifest.encoder is not None:
        require("cpu", f"bundle {str(bundle.folder)!r}: its encoder")
    with reading(bundle, "its files"):
        sparse = read_sparse(bundle)
        parts = ModelParts(
            catalogue=bundle.catalogue,
            sparse=sparse,
            dense=_read_dense(bundle),
            names=read_names(bundle) if NAMES in manifest.scorers else None,
            has_hybrid=HYBRID in manifest.scorers,
            calibrations=manifest.calibrations,
            blends=manifest.blends,
            neighbours=read_neighbours(bundle, sparse),
            aims=_read_aims(bundle),
            familiar=_read_familiar(bundle),
            promises=read_promises(bundle),
            is_confidential=manifest.is_confidential,
        )
        check_parts(bundle, parts)
    return parts


def _read_dense(bundle: Bundle) -> DenseParts | None:
    """Return the dense half of a bundle; None where it has none."""
    if bundle.manifest.encoder is None:
        return None
    from longtail.models.parts.dense_storage import read_dense  # brings PyTorch

    return read_dense(bundle, bundle.manifest.encoder)


def read_neighbours(bundle: Bundle, sparse: SparseModel) -> NeighbourMemory | None:
    """Return the documents that a bundle remembers; None where it has no such scorer.

    Raises:
        BundleCorruptError: They contradict each other, the vocabulary or the catalogue.
    """
    if NEIGHBOURS not in bundle.manifest.scorers:
        return None
    with reading(bundle, NEIGHBOURS_FILE):
        return NeighbourMemory.from_arrays(
            bundle.tensors(NEIGHBOURS_FILE),
            bundle.text(_NEIGHBOUR_IDS_FILE),
            len(sparse.tfidf.tokens),
            len(bundle.catalogue),
        )


def _read_aims(bundle: Bundle) -> dict[str, dict[AimName, Aim]]:
    # Return the aims of each scorer; none where no file has them.
    if AIMS_NAME not in bundle.manifest.files:
        return {}
    with reading(bundle, AIMS_NAME):
        return aims_from_json(bundle.text(AIMS_NAME))


def _read_familiar(bundle: Bundle) -> FamiliarRange | None:
    # Return what documents are like; None where the bundle does not say.
    if FAMILIAR_NAME not in bundle.manifest.files:
        return None
    with reading(bundle, FAMILIAR_NAME):
        return FamiliarRange.from_json(bundle.text(FAMILIAR_NAME))


def read_promises(bundle: Bundle) -> tuple[Promise, ...]:
    """Return the promises of a bundle; none where nobody asked for some.

    Raises:
        BundleCorruptError: They can't be read, or are of a scorer without probabilities.
    """
    if PROMISES_NAME not in bundle.manifest.files:
        return ()
    with reading(bundle, PROMISES_NAME):
        promises = promises_from_json(bundle.text(PROMISES_NAME))
    if odd := {each.scorer for each in promises}.difference(bundle.manifest.calibrations):
        said = f"promises of {sorted(odd)}, expected those of calibrated scorers"
        raise BundleCorruptError(contradiction(bundle, PROMISES_NAME, said))
    return promises


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
        BundleCorruptError: An array or the vocabulary is not what was written.
    """
    with reading(bundle, SPARSE_FILE):
        arrays = bundle.tensors(SPARSE_FILE)
        check_arrays(arrays, _SPARSE_RULES)
        with reading(bundle, _VOCABULARY_FILE):
            tfidf = TfidfModel.from_json(bundle.text(_VOCABULARY_FILE), arrays["idf"])
        weights = stored_csr(
            arrays["data"].astype(np.float32, copy=False),
            arrays["indices"],
            arrays["indptr"],
            (len(arrays["bias"]), len(tfidf.tokens)),
        )
        return SparseModel(tfidf, weights, arrays["bias"], arrays["labels"])
