"""Models whose labels are too many for one machine: split into shards, asked, and merged exactly.

Every scorer scores a label by that label's own rows and by what all shards have alike (encoder,
vocabulary, decisions of the label tree, calibrations, what priors are taken over). So a shard gives
its labels the scores that the whole model would, to the bit, and the best k of all labels are among
the best k of each shard. Labels of shards rise with their numbers, so ties keep their order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from longtail.models.bundle.bundle import (
    ENCODER_FOLDER,
    LABELS_NAME,
    Bundle,
    read_manifest,
    write_bundle,
)
from longtail.models.bundle.manifest import MANIFEST_NAME, Manifest
from longtail.models.bundle.registry import Registry
from longtail.models.bundle.shard import (
    MAP_NAME,
    SHARD_NAME,
    Shard,
    SplitModel,
    read_map,
    shard_ranges,
)
from longtail.models.errors import BundleError, ConfigError
from longtail.models.files.durable import write_json_durably
from longtail.models.files.outputs import check_writable_folder, visible_names
from longtail.models.parts.dense_parts import DenseParts
from longtail.models.parts.model_parts import ModelParts
from longtail.models.parts.storage import read_parts, tensors_of
from longtail.models.scorers.cascade import CASCADE_NAME
from longtail.models.scorers.linear import LinearModel
from longtail.models.scorers.sparse import SparseModel


def split_parts(parts: ModelParts, num_shards: int) -> list[ModelParts]:
    """Return the parts of each shard, whose labels are numbered from 0 on.

    The arrays of labels are views or copies of one range each; encoder, vocabulary and the tree's
    decisions are shared.

    Args:
        parts: Of the whole model.
        num_shards: From 1 to the number of labels.
    """
    return [part_of(parts, labels) for labels in shard_ranges(len(parts.catalogue), num_shards)]


def part_of(parts: ModelParts, labels: range) -> ModelParts:
    """Return the parts that score a range of the labels."""
    return replace(
        parts,
        catalogue=parts.catalogue.part(labels.start, labels.stop),
        sparse=_sparse_part(parts.sparse, labels),
        dense=None if parts.dense is None else _dense_part(parts.dense, labels),
        names=None if parts.names is None else replace(parts.names, scored=labels),
        neighbours=None if parts.neighbours is None else parts.neighbours.part_of(labels),
        cascade=None,  # who answers a text depends on its best labels of all shards
    )


def split_bundle(bundle: Bundle, num_shards: int) -> list[Callable[[Path], Manifest]]:
    """Return what writes the bundle of each shard, for `Registry.publish`.

    Equal bundles make equal shards, so a shard that is published twice is one version. Measures in
    the manifest stay those of the whole model.

    Args:
        bundle: A verified one.
        num_shards: From 1 to the number of labels.

    Raises:
        BundleError: The bundle is a shard itself, or has too few labels.
    """
    if bundle.shard is not None:
        raise BundleError(
            f"bundle {bundle.folder.name!r}: it is shard {bundle.shard.number} of "
            f"{bundle.shard.num_shards} already; split the whole model"
        )
    if not 1 <= num_shards <= len(bundle.catalogue):
        raise BundleError(
            f"bundle {bundle.folder.name!r}: got {num_shards} shards for "
            f"{len(bundle.catalogue)} labels; expected from 1 to as many"
        )
    parts = read_parts(bundle)
    ranges = shard_ranges(len(bundle.catalogue), num_shards)
    digest, whole = bundle.manifest.digest, bundle.catalogue.whole
    shards = [Shard(i, num_shards, x.start, digest, whole) for i, x in enumerate(ranges)]
    return [partial(_write_shard, bundle=bundle, parts=parts, shard=shard) for shard in shards]


def publish_shards(
    bundle: Bundle, num_shards: int, folder: Path, progress: Callable[[int], object] = int
) -> SplitModel:
    """Split a bundle into registries `folder/0`, `folder/1`, ..., one for each shard.

    `current` of each names its shard then, and `folder/shards.json` says which belong together.

    Args:
        bundle: A verified one.
        num_shards: As in `split_bundle`.
        folder: May hold shards of earlier versions, as many.
        progress: Called with 1 whenever a shard is there.

    Raises:
        BundleError: As `split_bundle` does; or the folder holds another number of shards.
    """
    _check_shards_folder(folder)
    writers = split_bundle(bundle, num_shards)
    path = folder / MAP_NAME
    known = read_map(path) if path.exists() else []
    if known and len(known[0].shard_digests) != num_shards:
        raise BundleError(
            f"{str(folder)!r} holds models of {len(known[0].shard_digests)} shards, got "
            f"{num_shards}; split into as many, or choose another folder"
        )
    digests = []
    for number, write in enumerate(writers):
        registry = Registry(folder / str(number))
        version = registry.publish(write, action="split")
        digests.append(read_manifest(registry.folder_of(version)).digest)
        progress(1)
    sizes = (len(labels) for labels in shard_ranges(len(bundle.catalogue), num_shards))
    split = SplitModel(bundle.manifest.digest, tuple(digests), tuple(sizes))
    write_json_durably(path, [asdict(x) for x in known if x != split] + [asdict(split)])
    return split


def _check_shards_folder(folder: Path) -> None:
    """Refuse a folder that holds anything else than shards, such as a model's own registry.

    Raises:
        ConfigError: It does, or can't be written to.
    """
    check_writable_folder(folder, "--output")
    for name in visible_names(folder) if folder.is_dir() else []:
        is_shard = name.isdigit() and not (folder / name / MANIFEST_NAME).exists()
        if name != MAP_NAME and not is_shard:
            raise ConfigError(
                f"--output {str(folder)!r}: holds {name!r}, which is no registry of a shard; "
                "choose an empty folder, or one with shards"
            )


def _sparse_part(model: SparseModel, labels: range) -> SparseModel:
    rows = _rows_within(model.labels, labels)
    return SparseModel(
        tfidf=model.tfidf,
        weights=csr_array(model.weights[rows]),
        bias=model.bias[rows],
        labels=model.labels[rows] - labels.start,
    )


def _dense_part(dense: DenseParts, labels: range) -> DenseParts:
    linear = dense.linear
    if linear is not None:
        tree = None if linear.tree is None else linear.tree.part_of(labels.start, labels.stop)
        linear = replace(linear, model=_linear_part(linear.model, labels), tree=tree)
    return replace(
        dense,
        label_vectors=dense.label_vectors[labels.start : labels.stop],
        classifier=None if dense.classifier is None else _linear_part(dense.classifier, labels),
        linear=linear,
    )


def _linear_part(model: LinearModel, labels: range) -> LinearModel:
    rows = _rows_within(model.labels, labels)
    return LinearModel(model.weight[rows], model.bias[rows], model.labels[rows] - labels.start)


def _rows_within(rising: np.ndarray, labels: range) -> slice:
    """Return which rows are of labels in a range."""
    first, stop = np.searchsorted(rising, (labels.start, labels.stop)).tolist()
    return slice(first, stop)


def _write_shard(folder: Path, bundle: Bundle, parts: ModelParts, shard: Shard) -> Manifest:
    labels = shard_ranges(len(bundle.catalogue), shard.num_shards)[shard.number]
    part = part_of(parts, labels)
    tensors = tensors_of(part)
    others = {name: bundle.tensors(name) for name in bundle.manifest.tensors if name not in tensors}
    texts = {
        name: bundle.text(name)
        for name in bundle.manifest.files
        if name not in bundle.manifest.tensors
        and name not in (LABELS_NAME, CASCADE_NAME)
        and not name.startswith(f"{ENCODER_FOLDER}/")
    }
    return write_bundle(
        folder,
        manifest=replace(
            bundle.manifest,
            label_count=len(labels),
            scorers=part.scorers,
            retired_label_count=int(part.catalogue.is_retired.sum()),
            longtail_version=version("longtail"),
        ),
        catalogue=part.catalogue,
        tensors=tensors | others,
        texts=texts | {SHARD_NAME: shard.to_json()},
        encoder_folder=None if parts.dense is None else bundle.encoder_folder,
    )
