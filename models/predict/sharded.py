"""Exact top k over the shards of a model."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from models.bundle.bundle import Bundle
from models.bundle.shard import Shard
from models.errors import BundleError, RequestError
from models.explain.label_facts import NUM_NEAREST, RememberedNeighbours
from models.labels.filters import LabelFilter, filters_of_parts
from models.parts.batches import FeatureBatch, TextBatch
from models.predict.predictor import Predictor
from models.ranking.top_k import NO_LABEL, Ranking, top_of_candidates
from models.results import Explanation, LabelScore, NearLabel, Prediction, with_explanations
from models.scorers.reliability import merge_warnings


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
