"""Models whose labels are too many for one machine: split into shards, asked, and merged exactly.

Every scorer scores a label by that label's own rows and by what all shards have alike (encoder,
vocabulary, decisions of the label tree, calibrations, what priors are taken over). So a shard gives
its labels the scores that the whole model would, to the bit, and the best k of all labels are among
the best k of each shard. Labels of shards rise with their numbers, so ties keep their order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from models.batches import FeatureBatch, TextBatch
from models.bundle import (
    ENCODER_FOLDER,
    LABELS_NAME,
    Bundle,
    read_manifest,
    write_bundle,
    write_json_durably,
)
from models.errors import BundleError, ConfigError, RequestError
from models.explanation import Explanation
from models.label_facts import NUM_NEAREST, NearLabel, RememberedNeighbours
from models.linear import LinearModel
from models.manifest import MANIFEST_NAME, Manifest
from models.outputs import check_writable_folder, visible_names
from models.parts import DenseParts, ModelParts, read_parts, tensors_of
from models.predictor import LabelScore, Prediction, Predictor, with_explanations
from models.ranking import NO_LABEL, Ranking, top_of_candidates
from models.registry import Registry
from models.reliability import merge_warnings
from models.selection import LabelFilter, filters_of_parts
from models.shard import MAP_NAME, SHARD_NAME, Shard, SplitModel, read_map, shard_ranges
from models.sparse import SparseModel


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
            f"bundle {bundle.folder.name!r}: {num_shards} shards came for "
            f"{len(bundle.catalogue)} labels; wanted from 1 to so many"
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
            f"{str(folder)!r} holds models of {len(known[0].shard_digests)} shards, {num_shards} "
            "came; split into as many, or choose another folder"
        )
    digests = []
    for number, write in enumerate(writers):
        registry = Registry(folder / str(number))
        version = registry.publish(write)
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


class ShardedPredictor:
    """The shards of one model in one process, asked one after the other.

    A text is read and encoded once, by the first shard. Not thread-safe on a GPU.
    """

    def __init__(self, predictors: Sequence[Predictor]) -> None:
        """Take the shards.

        Args:
            predictors: Of all shards of one model, in their order.
        """
        self._predictors = tuple(predictors)
        sizes = [len(each.catalogue) for each in predictors]
        self._firsts = [sum(sizes[:number]) for number in range(len(sizes))]
        self.num_labels = sum(sizes)
        self._remembered = RememberedNeighbours()

    @classmethod
    def of_bundles(
        cls,
        bundles: Sequence[Bundle],
        *,
        device: str | None = None,
        num_threads: int | None = None,
    ) -> ShardedPredictor:
        """Load all shards of a model.

        Args:
            bundles: Opened, in any order.
            device: As for `Predictor.of_bundle`.
            num_threads: As there.

        Raises:
            BundleError: They are not all the shards of one model, each once.
            BundleCorruptError: A bundle's parts contradict each other.
            ConfigError: There is no such device.
        """
        ordered = in_order(bundles)
        return cls(
            [Predictor.of_bundle(x, device=device, num_threads=num_threads) for x in ordered]
        )

    def read(self, texts: Sequence[str]) -> TextBatch:
        """Return texts made ready to be ranked by all shards (see `Predictor.read`)."""
        return self._predictors[0].read(texts)

    def rank(
        self,
        batch: TextBatch | FeatureBatch,
        k: int,
        scorer: str | None = None,
        correction: str | None = None,
        tail_dial: float = 0.0,
        label_filter: LabelFilter | None = None,
    ) -> Ranking:
        """Return the exact k best labels of each document, by their index in the whole model.

        Args:
            batch: What `read` returned.
            k: From 1 to the number of labels of all shards.
            scorer: As for `Predictor.rank`.
            correction: As there.
            tail_dial: As there.
            label_filter: As there; its ids are of labels of any shard.

        Raises:
            RequestError: As `Predictor.rank` does.
        """
        self._check_k(k)
        filters = self._filters(label_filter)
        rankings = [
            each.rank(batch, min(k, len(each.catalogue)), scorer, correction, tail_dial, wanted)
            for each, wanted in zip(self._predictors, filters, strict=True)
        ]
        return merge_rankings(rankings, self._firsts, k)

    def predict(
        self,
        texts: Sequence[str],
        *,
        k: int = 5,
        scorer: str | None = None,
        threshold: float | None = None,
        correction: str | None = None,
        tail_dial: float = 0.0,
        label_filter: LabelFilter | None = None,
        explain: bool = False,
    ) -> list[Prediction]:
        """Return the best labels of each text (see `Predictor.predict`).

        Each label is explained by its shard; the labels that are like it are sought in all.

        Raises:
            RequestError: As `Predictor.predict` does.
        """
        self._check_k(k)
        batch = self.read(texts)
        of_shards = [
            each.predict_batch(
                batch, k=min(k, len(each.catalogue)), scorer=scorer, threshold=threshold,
                correction=correction, tail_dial=tail_dial, label_filter=wanted,
            )
            for each, wanted in zip(self._predictors, self._filters(label_filter), strict=True)
        ]  # fmt: skip
        merged = [
            _with_warnings_of(
                replace(found[0], labels=self._merged([each.labels for each in found], k)), found
            )
            for found in zip(*of_shards, strict=True)
        ]
        if not explain:
            return merged
        labels = [[label.index for label in each.labels] for each in merged]
        return with_explanations(
            merged, self._explain(batch, labels, scorer, correction, tail_dial)
        )

    def _filters(self, label_filter: LabelFilter | None) -> Sequence[LabelFilter | None]:
        """Return what a filter means for each shard.

        Raises:
            RequestError: It names labels that no shard has.
        """
        if label_filter is None:
            return [None] * len(self._predictors)
        known = [each.selector.known(label_filter) for each in self._predictors]
        return filters_of_parts(label_filter, known)

    def _explain(
        self,
        batch: TextBatch,
        labels: Sequence[Sequence[int]],
        scorer: str | None,
        correction: str | None,
        tail_dial: float,
    ) -> list[tuple[Explanation, ...]]:
        """Return why labels, by their indices in the whole model, fit each text."""
        found: list[dict[int, Explanation]] = [{} for _ in labels]
        for first, predictor in zip(self._firsts, self._predictors, strict=True):
            rows = range(first, first + len(predictor.catalogue))
            own = [[label for label in row if label in rows] for row in labels]
            if not any(own):
                continue
            explained = predictor.explain(
                batch, [[label - first for label in row] for row in own], scorer, correction,
                tail_dial, partial(self._nearest_of, first),
            )  # fmt: skip
            for of_text, row, explanations in zip(found, own, explained, strict=True):
                of_text.update(zip(row, explanations, strict=True))
        return [
            tuple(of_text[label] for label in row)
            for of_text, row in zip(found, labels, strict=True)
        ]

    def _nearest_of(self, first: int, rows: Sequence[int]) -> list[tuple[NearLabel, ...]]:
        """Return the labels of all shards that are nearest to labels of the shard with `first`."""
        return self._remembered.nearest(
            [first + row for row in rows], lambda labels: [self._nearest(x) for x in labels]
        )

    def _nearest(self, label: int) -> tuple[NearLabel, ...]:
        owner = bisect_right(self._firsts, label) - 1
        row = label - self._firsts[owner]
        vector = self._predictors[owner].facts.vectors_of([row])
        near = [
            replace(found, index=first + found.index)
            for number, (first, each) in enumerate(zip(self._firsts, self._predictors, strict=True))
            for found in each.facts.nearest_to(vector, [row if number == owner else NO_LABEL])[0]
        ]
        return tuple(sorted(near, key=lambda each: -each.similarity)[:NUM_NEAREST])

    def _merged(self, found: Sequence[Sequence[LabelScore]], k: int) -> tuple[LabelScore, ...]:
        labels = [
            replace(label, index=first + label.index)
            for some, first in zip(found, self._firsts, strict=True)
            for label in some
        ]
        return tuple(sorted(labels, key=lambda label: (-label.score, label.index))[:k])

    def _check_k(self, k: int) -> None:
        if not 1 <= k <= self.num_labels:
            raise RequestError(f"k is {k}; wanted 1 to {self.num_labels}, the number of labels")


def _with_warnings_of(merged: Prediction, found: Sequence[Prediction]) -> Prediction:
    """Return a merged answer with the shards' warnings about the labels that it has kept."""
    about = [each.warnings for each in found]
    return replace(merged, warnings=merge_warnings(about, [label.id for label in merged.labels]))


def merge_rankings(rankings: Sequence[Ranking], firsts: Sequence[int], k: int) -> Ranking:
    """Return the k best of what all shards found: higher scores first, ties by smaller index.

    Args:
        rankings: Of each shard, its best k or all its labels; numbered from 0 on.
        firsts: Index of each shard's first label in the whole.
        k: At least 1.
    """
    labels = [
        np.where(found.labels == NO_LABEL, NO_LABEL, found.labels + first)
        for found, first in zip(rankings, firsts, strict=True)
    ]
    scores = [found.scores for found in rankings]
    return top_of_candidates(np.concatenate(labels, axis=1), np.concatenate(scores, axis=1), k)


def in_order(bundles: Sequence[Bundle]) -> list[Bundle]:
    """Return the shards of a model by their numbers.

    Raises:
        BundleError: They are not all the shards of one model, each once.
    """
    by_number = {x.shard.number: x for x in bundles if x.shard is not None}
    wholes = {(x.shard.digest, x.shard.num_shards) for x in bundles if x.shard is not None}
    num_shards = next(iter(wholes))[1] if len(wholes) == 1 else 0
    if not 0 < num_shards == len(by_number) == len(bundles):
        came = ", ".join(_shown(bundle.shard) for bundle in bundles)
        raise BundleError(
            f"shards: {came or 'nothing'} came; wanted each shard of one model once; split it "
            "with 'longtail registry split'"
        )
    return [by_number[number] for number in range(num_shards)]


def _shown(shard: Shard | None) -> str:
    if shard is None:
        return "a whole model"
    return f"{shard.number} of {shard.num_shards} of {shard.digest[:12]}"


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
    texts = {
        name: bundle.text(name)
        for name in bundle.manifest.files
        if name not in tensors and name != LABELS_NAME and not name.startswith(f"{ENCODER_FOLDER}/")
    }
    return write_bundle(
        folder,
        manifest=replace(
            bundle.manifest, label_count=len(labels), longtail_version=version("longtail")
        ),
        catalogue=part.catalogue,
        tensors=tensors,
        texts=texts | {SHARD_NAME: shard.to_json()},
        encoder_folder=None if parts.dense is None else bundle.encoder_folder,
    )
