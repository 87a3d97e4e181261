"""The parts of a model on disk: from and to the files of a bundle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from longtail.models.bundle.bundle import Bundle, write_bundle
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.trained_on import TrainedOn
from longtail.models.bundle.warmup_texts import PROBES_NAME, probes_to_jsonl
from longtail.models.errors import BundleCorruptError, BundleError
from longtail.models.extras import require
from longtail.models.kinds.registry import KINDS, scorer_names, with_own_models
from longtail.models.kinds.scorer import ScorerKind
from longtail.models.labels.figures import FIGURES_NAME, LabelFigures
from longtail.models.names import HYBRID
from longtail.models.parts.consistency import check_parts, contradiction, reading
from longtail.models.parts.model_parts import ModelParts
from longtail.models.parts.sparse_storage import read_sparse
from longtail.models.review.fitted import (
    REVIEW_NAME,
    FittedReview,
    review_from_json,
    review_to_json,
)
from longtail.models.scorers.aims import AIMS_NAME, aims_from_json, aims_to_json
from longtail.models.scorers.familiar_range import (
    FAMILIAR_NAME,
    familiar_from_json,
    familiar_to_json,
)
from longtail.models.scorers.label_counts import (
    LABEL_COUNTS_NAME,
    label_counts_from_json,
    label_counts_to_json,
)
from longtail.models.scorers.promises import (
    PROMISES_NAME,
    Promise,
    promises_from_json,
    promises_to_json,
)
from longtail.models.scorers.sparse import SparseModel

if TYPE_CHECKING:
    from longtail.models.parts.dense_parts import DenseParts

_Read = TypeVar("_Read")


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
    texts: dict[str, str] = {}
    for kind in KINDS.values():
        if (model := kind.model_of(parts)) is not None:
            texts |= kind.texts(model)
    optional = {
        AIMS_NAME: parts.aims and aims_to_json(parts.aims),
        FAMILIAR_NAME: parts.familiar and familiar_to_json(parts.familiar),
        FIGURES_NAME: parts.figures and parts.figures.to_json(),
        LABEL_COUNTS_NAME: parts.label_counts and label_counts_to_json(parts.label_counts),
        PROMISES_NAME: parts.promises and promises_to_json(parts.promises),
        REVIEW_NAME: parts.review and review_to_json(parts.review),
    }
    return texts | {name: text for name, text in optional.items() if isinstance(text, str)}


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
    """Return the parts of a verified bundle.

    Raises:
        BundleCorruptError: The parts contradict each other or the manifest.
        BundleError: It has a scorer that is not registered here.
        ConfigError: It has an encoder, and the libraries of one are not installed.
    """
    manifest, num_labels = bundle.manifest, len(bundle.catalogue)
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
            aims=_read_text(bundle, AIMS_NAME, aims_from_json) or {},
            familiar=_read_text(bundle, FAMILIAR_NAME, familiar_from_json),
            figures=_read_text(
                bundle, FIGURES_NAME, lambda text: LabelFigures.from_json(text, num_labels)
            ),
            label_counts=_read_text(bundle, LABEL_COUNTS_NAME, label_counts_from_json) or {},
            promises=read_promises(bundle),
            review=_read_review(bundle),
            is_confidential=manifest.is_confidential,
        )
        check_parts(bundle, parts)
    return parts


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


def mapped_bytes(bundle: Bundle) -> int:
    """Return the bytes of the arrays of a bundle that stay in their files."""
    found = 0
    for kind in KINDS.values():
        arrays = bundle.manifest.tensors.get(kind.file, {})
        if arrays and not bundle.maps(kind.file):
            continue
        infos = [arrays[name] for name in kind.mapped if name in arrays]
        found += sum(prod(info.shape) * int(info.dtype[1:]) // 8 for info in infos)
    return found


def read_model(bundle: Bundle, kind: ScorerKind, sparse: SparseModel) -> Any:
    """Return the model of one scorer of a bundle.

    Raises:
        BundleCorruptError: Its files are not what was written.
    """
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


def _read_text(bundle: Bundle, name: str, read: Callable[[str], _Read]) -> _Read | None:
    """Return the content of an optional text file; None where the bundle has no such file."""
    if name not in bundle.manifest.files:
        return None
    with reading(bundle, name):
        return read(bundle.text(name))


def _read_review(bundle: Bundle) -> FittedReview | None:
    """Return how a reviewer's scores count; None where nobody fitted it."""
    review = _read_text(bundle, REVIEW_NAME, review_from_json)
    if review is not None and review.scorer not in bundle.manifest.scorers:
        said = f"a review of {review.scorer!r}, expected one of a scorer"
        raise BundleCorruptError(contradiction(bundle, REVIEW_NAME, said))
    return review


def read_promises(bundle: Bundle) -> tuple[Promise, ...]:
    """Return the promises of a bundle; none where nobody asked for some.

    Raises:
        BundleCorruptError: They can't be read, or are of a scorer without probabilities or of a
            label that there is not.
    """
    promises = _read_text(bundle, PROMISES_NAME, promises_from_json) or ()
    if odd := {each.scorer for each in promises}.difference(bundle.manifest.calibrations):
        said = f"promises of {sorted(odd)}, expected those of calibrated scorers"
        raise BundleCorruptError(contradiction(bundle, PROMISES_NAME, said))
    rows = max((row for each in promises for row in each.label_thresholds), default=-1)
    if rows >= bundle.manifest.label_count:
        said = f"a threshold of label row {rows}, expected less than {bundle.manifest.label_count}"
        raise BundleCorruptError(contradiction(bundle, PROMISES_NAME, said))
    return promises
