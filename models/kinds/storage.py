"""The parts of a model on disk: from and to the files of a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from longtail.models.bundle.bundle import Bundle, MapArrays, is_mapped, write_bundle
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.trained_on import PROBES_NAME, TrainedOn, probes_to_jsonl
from longtail.models.errors import BundleError
from longtail.models.extras import require
from longtail.models.fitted.registry import check_fitted, fitted_texts, read_fitted
from longtail.models.kinds.registry import KINDS, scorer_names, with_own_models
from longtail.models.kinds.scorer import ScorerKind
from longtail.models.names import HYBRID, HYBRID_OF
from longtail.models.parts.consistency import check_parts, reading
from longtail.models.parts.model_parts import ModelParts
from longtail.models.parts.sparse_storage import read_sparse
from longtail.models.scorers.sparse import SparseModel

if TYPE_CHECKING:
    from longtail.models.parts.dense_parts import DenseParts


def write_parts(
    folder: Path,
    parts: ModelParts,
    manifest: Manifest,
    scratch: Path,
    probes: Sequence[str] = (),
    record: TrainedOn | None = None,
    *,
    has_encoder: bool = False,
) -> Manifest:
    """Write a bundle of these parts (see `longtail.models.bundle.bundle.write_bundle`).

    Args:
        folder: The bundle's folder; it must not exist.
        parts: What to write.
        manifest: All but its files and digest.
        scratch: A folder in which the encoder is saved first, if there is one.
        probes: Texts that it brings along to be tried on.
        record: Record of the documents that the model was trained on; None: none is written.
        has_encoder: Whether the encoder is in that folder already.
    """
    texts, tensors = texts_of(parts), tensors_of(parts)
    if record is not None:
        texts, tensors = texts | record.texts(), tensors | record.tensors()
    if probes:
        texts[PROBES_NAME] = probes_to_jsonl(probes)
    if parts.dense is not None and not has_encoder:
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
    texts: dict[str, str] = {}
    for kind in KINDS.values():
        if (model := kind.model_of(parts)) is not None:
            texts |= kind.texts(model)
    return texts | fitted_texts(parts)


def tensors_of(parts: ModelParts) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays of these parts, by file name and name; the transformer's lie elsewhere."""
    arrays: dict[str, dict[str, np.ndarray]] = {}
    for kind in KINDS.values():
        if (model := kind.model_of(parts)) is not None:
            arrays[kind.file] = kind.arrays(model)
    arrays = {file: content for file, content in arrays.items() if content}
    if parts.dense is None:
        return arrays
    from longtail.models.parts.dense_storage import dense_arrays  # brings PyTorch

    return arrays | dense_arrays(parts.dense)


def read_parts(bundle: Bundle) -> ModelParts:
    """Return the parts of a verified bundle."""
    manifest = bundle.manifest
    if manifest.encoder is not None:
        require("cpu", f"bundle {str(bundle.folder)!r}: its encoder")
    _check_known(bundle)
    with reading(bundle, "its files"):
        sparse = read_sparse(bundle)
        parts = ModelParts(
            catalogue=bundle.catalogue,
            sparse=sparse,
            dense=_read_dense(bundle),
            models=_read_models(bundle, sparse),
            has_hybrid=HYBRID in manifest.scorers,
            calibrations=manifest.calibrations,
            blends=manifest.blends,
            fitted=read_fitted(bundle),
            is_confidential=manifest.is_confidential,
            num_training_documents=manifest.training_document_count,
        )
        check_parts(bundle, parts)
        check_fitted(bundle, parts)
    return parts


def without_encoder(bundle: Bundle) -> Bundle:
    """Return a bundle as if it had no encoder, where its default scorer needs none; else itself.

    What it then answers by the scorers that are left is to the bit what the whole one does, but for
    explanations and details of labels, which compare vectors.
    """
    said = bundle.manifest
    members = {name: set(blend.weights) for name, blend in said.blends.items()}
    members[HYBRID] = set(HYBRID_OF)
    dense = {name for name, kind in KINDS.items() if kind.needs_encoder}
    left_out = tuple(x for x in said.scorers if dense & members.get(x, {x}))
    if said.encoder is None or said.default_scorer in left_out:
        return bundle
    light = replace(
        said,
        encoder=None,
        scorers=tuple(x for x in said.scorers if x not in left_out),
        blends={name: blend for name, blend in said.blends.items() if name not in left_out},
        linear_correction=None,
    )
    return replace(bundle, manifest=light, left_out=left_out)


def _check_known(bundle: Bundle) -> None:
    if unknown := set(bundle.manifest.scorers).difference(scorer_names()):
        raise BundleError(
            f"bundle {bundle.folder.name!r}: nothing is registered for its scorers "
            f"{', '.join(sorted(unknown))}; import the package that registers them "
            "(longtail.models.kinds.registry.register) before the bundle is read"
        )


def _read_models(bundle: Bundle, sparse: SparseModel) -> dict[str, Any]:
    """Return the models of the scorers that have files of their own."""
    return {
        kind.name: read_model(bundle, kind, sparse)
        for kind in with_own_models(bundle.manifest.scorers)
    }


def mapped_bytes(folder: Path, manifest: Manifest, map_arrays: MapArrays) -> int:
    """Return the bytes of the arrays of a bundle that stay in their files."""
    found = 0
    for kind in KINDS.values():
        arrays = manifest.tensors.get(kind.file, {})
        if arrays and not is_mapped(folder / kind.file, map_arrays):
            continue
        infos = [arrays[name] for name in kind.mapped if name in arrays]
        found += sum(prod(info.shape) * int(info.dtype[1:]) // 8 for info in infos)
    return found


def read_model(bundle: Bundle, kind: ScorerKind, sparse: SparseModel) -> Any:
    """Return the model of one scorer of a bundle."""
    files = [name for name in bundle.manifest.files if name.startswith(f"{kind.name}.")]
    with reading(bundle, kind.file):
        texts = {name: bundle.text(name) for name in files if name != kind.file}
        arrays = bundle.tensors(kind.file, kind.mapped) if kind.file in files else {}
        return kind.read(arrays, texts, sparse, len(bundle.catalogue))


def _read_dense(bundle: Bundle) -> DenseParts | None:
    """Return the dense half of a bundle; None where it has none."""
    if bundle.manifest.encoder is None:
        return None
    from longtail.models.parts.dense_storage import read_dense  # brings PyTorch

    return read_dense(bundle, bundle.manifest.encoder)
