"""Labels that a trained model gets without training: their vectors come from its own encoder.

Such a label has no row in any other scorer and is no leaf of the label tree, as one that had no
training documents in the corpus has none; `retrieval` and `names` rank it, and what blends them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from longtail.models.bundle.bundle import LABELS_NAME, Bundle, read_manifest
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.registry import Registry
from longtail.models.edit.rewriting import (
    VECTORS,
    added_label,
    encoded_label_texts,
    model_to_extend,
    write_changed,
)
from longtail.models.errors import BundleError, DataError, count_of, ignore
from longtail.models.fitted.registry import PARTS
from longtail.models.kinds.registry import kinds_of_new_labels, with_own_models
from longtail.models.labels.catalogue import Label, LabelCatalogue, with_names_of_parents
from longtail.models.parts.model_parts import RETRIEVAL_FILE
from longtail.models.parts.sparse_storage import read_sparse

_MAX_IDS = 5


def add_labels(
    bundle: Bundle, labels: Iterable[Label], progress: Callable[[int], object] = ignore
) -> Callable[[Path], Manifest]:
    """Return what writes a bundle with more labels than this one, for `Registry.publish`.

    All else is copied as it is, so old labels keep their vectors, weights and calibrations, and
    their scores by all scorers but `names`, which compares what the names found in a text have in
    common, and those that blend it. The metrics in the manifest stay those of the training. The
    label text is made and cut as in training, without keywords, which a label without documents has
    none of.

    Args:
        bundle: A verified one.
        labels: By id, name, description, other names and the ids of their parents, the last two
            of which are in the text as far as in training; they come after the old ones.
        progress: Called with the number of labels of each batch that was encoded.
    """
    kinds = kinds_of_new_labels(bundle.manifest.scorers)
    if not kinds:
        raise BundleError(
            f"bundle {bundle.folder.name!r}: it has no encoder and no scorer 'names', so nothing "
            "could find a label without training documents; train with 'retrieval' or 'names'"
        )
    given = list(labels)
    if not given:
        raise DataError("new labels: got none; give at least one")
    named = with_names_of_parents(given, [*bundle.catalogue, *given])
    new = [added_label(label, bundle) for label in named]
    catalogue = LabelCatalogue([*bundle.catalogue, *new])
    tensors: dict[str, dict[str, np.ndarray]] = {}
    texts: dict[str, str] = {}
    if bundle.manifest.encoder is not None:
        vectors = encoded_label_texts(bundle, [label.pseudo_description for label in new], progress)
        from longtail.models.parts.dense_storage import read_label_vectors  # brings PyTorch

        before = read_label_vectors(bundle)
        tensors[RETRIEVAL_FILE] = {VECTORS: np.concatenate([before, vectors])}
    sparse = read_sparse(bundle)
    named = [replace(label, id=other.id) for label, other in zip(named, new, strict=True)]
    for kind in with_own_models([kind.name for kind in kinds]):
        model = kind.with_labels(model_to_extend(bundle, kind, sparse), named)
        tensors[kind.file] = kind.arrays(model)
        texts |= kind.texts(model)
    return lambda folder: write_changed(folder, bundle, catalogue, tensors, texts)


def check_is_latest(registry: Registry, version: int, labels: Iterable[Label]) -> None:
    """Refuse labels that the version has, and to add beside another one that has more added to it.

    Otherwise the second of two calls would start from the trained model, and leave out what the
    first one added. A call that is repeated adds the same labels, and is no such case.
    """
    labels = list(labels)
    check_ids_are_new(registry.folder_of(version), labels)
    manifest = read_manifest(registry.folder_of(version))
    ids = {label.id.strip() for label in labels}
    for other in reversed(registry.versions()):
        if other == version or not _is_extended(manifest, registry.folder_of(other)):
            continue
        added = list(registry.open(other).catalogue)[manifest.label_count :]
        if not ids <= {label.id for label in added}:
            known = ", ".join(repr(label.id) for label in added[:_MAX_IDS])
            raise BundleError(
                f"registry {str(registry.folder)!r}: version {other} is version {version} with "
                f"{count_of(len(added), 'more label')} ({known}); choose --version {other} to add "
                f"to those, or --version {version} to leave them out"
            )


def check_ids_are_new(folder: Path, labels: Iterable[Label]) -> None:
    """Refuse labels whose ids a version has, or that come twice, before its files are verified."""
    names: dict[str, str] = {}
    with suppress(OSError, ValueError, TypeError, KeyError):  # opening it tells what is broken
        for line in (folder / LABELS_NAME).read_text(encoding="utf-8").split("\n")[:-1]:
            label = json.loads(line)
            names[label["id"]] = label["name"]
    new: set[str] = set()
    for label in labels:
        label_id = label.id.strip()
        what = f"new label {label.id!r} ({label.name!r})"
        if label_id in names:
            raise DataError(
                f"{what}: the bundle has a label with this id, {names[label_id]!r}; give another id"
            )
        if label_id in new:
            raise DataError(f"{what}: another new label has this id; give each its own")
        new.add(label_id)


def _is_extended(before: Manifest, folder: Path) -> bool:
    """Whether a folder holds what `add_labels` made of a bundle, as far as manifests tell."""
    try:
        after = read_manifest(folder)
    except BundleError:
        return False  # a broken version is none
    lost = (part.file for part in PARTS.values() if part.if_lost)
    changed = {LABELS_NAME, RETRIEVAL_FILE, *lost}
    for kind in kinds_of_new_labels(before.scorers):
        changed.update(x for x in before.files if x.startswith(f"{kind.name}."))
    kept = [{k: v for k, v in each.files.items() if k not in changed} for each in (before, after)]
    return kept[0] == kept[1] and after.label_count > before.label_count


def equal_names(catalogue: LabelCatalogue, labels: Iterable[Label]) -> list[str]:
    """Return a warning for each new label whose name another label has, in whatever case."""
    ids_of: dict[str, list[str]] = {}
    for label in catalogue:
        ids_of.setdefault(_folded(label.name), []).append(label.id)
    warnings = []
    for label in labels:
        others = ids_of.setdefault(_folded(label.name), [])
        if others:
            there = ", ".join(map(repr, others[:_MAX_IDS]))
            warnings.append(
                f"new label {label.id!r} ({label.name!r}): a label with this name is there "
                f"already, with the id {there}; both will be answered"
            )
        others.append(label.id)
    return warnings


def _folded(name: str) -> str:
    return " ".join(name.casefold().split())
