"""Whether the parts of a model fit each other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from longtail.models.bundle.bundle import Bundle
from longtail.models.errors import BundleCorruptError, BundleError, ConfigError, DataError
from longtail.models.names import (
    CLASSIFIER,
    DENSE_NEIGHBOURS,
    ENSEMBLE,
    FAST,
    HYBRID,
    LINEAR,
    WORD_NEIGHBOURS,
    WORD_VECTORS,
)
from longtail.models.parts.model_parts import RETRIEVAL_FILE, ModelParts

if TYPE_CHECKING:
    from longtail.models.parts.dense_parts import DenseParts
    from longtail.models.scorers.linear import LinearScorer

_MAX_CHARACTERS = 500
"""Characters of an error that are kept: it may quote a whole file."""


def check_parts(bundle: Bundle, parts: ModelParts) -> None:
    """Refuse parts whose sizes contradict the catalogue, the encoder or the manifest."""
    if parts.dense is not None:
        _check_dense(bundle, parts.dense)
        for name in filter(parts.models.__contains__, (CLASSIFIER, LINEAR)):
            _check_linear(bundle, name, parts.models[name], parts.dense.encoder.dim)
        _check_memory(bundle, parts, DENSE_NEIGHBOURS, parts.dense.encoder.dim)
    if WORD_VECTORS in parts.models:
        _check_memory(bundle, parts, WORD_NEIGHBOURS, parts.models[WORD_VECTORS].words.dim)
    _check_scorers(bundle, parts)


def _check_memory(bundle: Bundle, parts: ModelParts, name: str, dim: int) -> None:
    memory = parts.models.get(name)
    if memory is not None and memory.vectors.dim != dim:
        what = f"vectors of {memory.vectors.dim} numbers, those of texts have {dim}"
        raise BundleCorruptError(contradiction(bundle, f"{name}.safetensors", what))


def _check_scorers(bundle: Bundle, parts: ModelParts) -> None:
    if parts.scorers != bundle.manifest.scorers:
        said = f"scorers {bundle.manifest.scorers}, the files make {parts.scorers}"
        raise BundleCorruptError(contradiction(bundle, "manifest.json", said))
    if bundle.manifest.default_scorer not in parts.scorers:
        said = f"default_scorer {bundle.manifest.default_scorer!r}, expected one of {parts.scorers}"
        raise BundleCorruptError(contradiction(bundle, "manifest.json", said))
    if other := set(parts.blends).difference((ENSEMBLE, FAST)):
        said = f"blends {sorted(other)}, expected {ENSEMBLE!r} and {FAST!r} only"
        raise BundleCorruptError(contradiction(bundle, "manifest.json", said))
    odd = set(parts.calibrations).difference(parts.scorers, bundle.left_out)
    for blend in parts.blends.values():
        odd |= {*blend.weights}.difference(parts.scorers) | {*blend.weights} & {
            HYBRID,
            *parts.blends,
        }
    if odd:
        said = f"calibrations or blend weights of {sorted(odd)}, expected those of scorers"
        raise BundleCorruptError(contradiction(bundle, "manifest.json", said))
    own = parts.models[LINEAR].correction if LINEAR in parts.scorers else None
    if own != bundle.manifest.linear_correction:
        said = f"linear_correction {bundle.manifest.linear_correction!r}, scorer {LINEAR!r}: {own}"
        raise BundleCorruptError(contradiction(bundle, "manifest.json", said))


def _check_dense(bundle: Bundle, dense: DenseParts) -> None:
    from longtail.models.encoders.families import num_positions  # brings PyTorch

    num_labels, dim = len(bundle.catalogue), dense.encoder.dim
    if dense.label_vectors.shape != (num_labels, dim):
        shapes = f"label_vectors {dense.label_vectors.shape}, expected {(num_labels, dim)}"
        raise BundleCorruptError(contradiction(bundle, RETRIEVAL_FILE, shapes))
    said = bundle.manifest.encoder
    assert said is not None  # else there would be no dense half
    if said.dim != dim:
        what = f"dim {said.dim}, the encoder has {dim}"
        raise BundleCorruptError(contradiction(bundle, "manifest.json", what))
    most_tokens = num_positions(dense.encoder.transformer)
    if not 1 <= dense.max_tokens <= most_tokens:
        what = f"max_tokens {dense.max_tokens}, the encoder has {most_tokens} positions"
        raise BundleCorruptError(contradiction(bundle, "manifest.json", what))


def _check_linear(bundle: Bundle, name: str, linear: LinearScorer, dim: int) -> None:
    file = f"{name}.safetensors"
    if linear.model.weight.shape[1:] != (dim,):
        raise BundleCorruptError(contradiction(bundle, file, f"{dim} dimensions expected"))
    if linear.tree is not None:
        # Labels that were added later are no leaves: p_n of them is 0, and they have no row here.
        num_labels, least = linear.tree.num_labels, int(linear.model.labels.max(initial=-1)) + 1
        most, tree_dim = len(bundle.catalogue), len(linear.tree.mean)
        if not least <= num_labels <= most or tree_dim != dim:
            what = (
                f"a tree of (labels, dimensions) {(num_labels, tree_dim)}, expected {least} to "
                f"{most}, and {dim}"
            )
            raise BundleCorruptError(contradiction(bundle, file, what))
    counts = bundle.catalogue.training_counts[linear.model.labels]
    if linear.correction == "prior" and not counts.all():
        what = "correction 'prior' with labels that no training document carries"
        raise BundleCorruptError(contradiction(bundle, file, what))


@contextmanager
def reading(bundle: Bundle, name: str) -> Iterator[None]:
    """Say of any error that a file of a bundle is the reason: libraries raise all kinds of them.

    Args:
        bundle: Whose file is read.
        name: Name of the file, or of the file that the others belong to.
    """
    try:
        yield
    except (ConfigError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, BundleError) and str(error).startswith("bundle "):
            raise  # which names its file
        is_told = isinstance(error, BundleError | DataError | ValueError)
        what = str(error) if is_told else f"{type(error).__name__}: {error}"
        raise BundleCorruptError(contradiction(bundle, name, what)) from error


def contradiction(bundle: Bundle, name: str, what: str) -> str:
    """Return the sentence that a file of a bundle contradicts another part of it."""
    shown = json.dumps(what[:_MAX_CHARACTERS])[1:-1]
    return (
        f"bundle {bundle.folder.name!r}: {name} can't be used: {shown}; "
        "train again with 'longtail train'"
    )
