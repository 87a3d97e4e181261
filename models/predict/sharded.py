"""Exact top k over the shards of a model."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Unpack

import numpy as np

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.shard import Shard
from longtail.models.errors import BundleError, RequestError
from longtail.models.explain.label_facts import NUM_NEAREST, RememberedNeighbours
from longtail.models.labels.filters import LabelFilter, filters_of_parts
from longtail.models.options import RankingKeywords, RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL, Ranking, top_of_candidates
from longtail.models.results import (
    Explanation,
    LabelScore,
    NearLabel,
    Prediction,
    with_explanations,
)
from longtail.models.scorers.reliability import merge_warnings


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
        sizes = [len(shard.catalogue) for shard in predictors]
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

    def rank(self, batch: TextBatch, options: RankingOptions) -> Ranking:
        """Return the exact k best labels of each text, by their index in the whole model.

        Args:
            batch: What `read` returned.
            options: As for `Predictor.rank`; the filter's ids are of labels of any shard.

        Raises:
            RequestError: As `Predictor.rank` does.
        """
        rankings = [
            shard.rank(batch, part)
            for shard, part in zip(self._predictors, self._options_of(options), strict=True)
        ]
        return merge_rankings(rankings, self._firsts, options.k)

    def predict(self, texts: Sequence[str], **options: Unpack[RankingKeywords]) -> list[Prediction]:
        """Return the best labels of each text (see `Predictor.predict`).

        Each label is explained by its shard; the labels that are like it are sought in all.

        Raises:
            RequestError: As `Predictor.predict` does.
        """
        return self.predict_batch(self.read(texts), RankingOptions(**options))

    def predict_batch(self, batch: TextBatch, options: RankingOptions) -> list[Prediction]:
        """Return the best labels of texts that `read` has made ready (see `predict`).

        Raises:
            RequestError: As `predict` does, of what is not about the texts.
        """
        of_shards = [
            shard.predict_batch(batch, replace(part, explain=False))
            for shard, part in zip(self._predictors, self._options_of(options), strict=True)
        ]
        merged = [
            _with_warnings_of(
                replace(parts[0], labels=self._merged([x.labels for x in parts], options.k)), parts
            )
            for parts in zip(*of_shards, strict=True)
        ]
        if not options.explain:
            return merged
        labels = [[label.index for label in prediction.labels] for prediction in merged]
        return with_explanations(merged, self._explain(batch, labels, options))

    def _options_of(self, options: RankingOptions) -> list[RankingOptions]:
        """Return what options mean for each shard.

        Raises:
            RequestError: k is more than there are labels, or the filter names labels that no shard
                has.
        """
        if options.k > self.num_labels:
            raise RequestError(
                f"k is {options.k}; expected 1 to {self.num_labels}, the number of labels"
            )
        return [
            replace(options, k=min(options.k, len(shard.catalogue)), label_filter=part)
            for shard, part in zip(
                self._predictors, self._filters(options.label_filter), strict=True
            )
        ]

    def _filters(self, label_filter: LabelFilter | None) -> Sequence[LabelFilter | None]:
        """Return what a filter means for each shard.

        Raises:
            RequestError: It names labels that no shard has.
        """
        if label_filter is None:
            return [None] * len(self._predictors)
        known = [shard.selector.known(label_filter) for shard in self._predictors]
        return filters_of_parts(label_filter, known)

    def _explain(
        self, batch: TextBatch, labels: Sequence[Sequence[int]], options: RankingOptions
    ) -> list[tuple[Explanation, ...]]:
        """Return why labels, by their indices in the whole model, fit each text."""
        explanations: list[dict[int, Explanation]] = [{} for _ in labels]
        for first, shard in zip(self._firsts, self._predictors, strict=True):
            rows = range(first, first + len(shard.catalogue))
            of_shard = [[label for label in of_text if label in rows] for of_text in labels]
            if not any(of_shard):
                continue
            local = [[label - first for label in of_text] for of_text in of_shard]
            explained = shard.explain(batch, local, options, partial(self._nearest_of, first))
            for of_text, names, parts in zip(explanations, of_shard, explained, strict=True):
                of_text.update(zip(names, parts, strict=True))
        return [
            tuple(of_text[label] for label in row)
            for of_text, row in zip(explanations, labels, strict=True)
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
            replace(label, index=first + label.index)
            for number, (first, shard) in enumerate(
                zip(self._firsts, self._predictors, strict=True)
            )
            for label in shard.facts.nearest_to(vector, [row if number == owner else NO_LABEL])[0]
        ]
        return tuple(sorted(near, key=lambda label: -label.similarity)[:NUM_NEAREST])

    def _merged(self, parts: Sequence[Sequence[LabelScore]], k: int) -> tuple[LabelScore, ...]:
        """Return the k best labels of all shards, by their indices in the whole model."""
        labels = [
            replace(label, index=first + label.index)
            for of_shard, first in zip(parts, self._firsts, strict=True)
            for label in of_shard
        ]
        return tuple(sorted(labels, key=lambda label: (-label.score, label.index))[:k])


def _with_warnings_of(merged: Prediction, parts: Sequence[Prediction]) -> Prediction:
    """Return a merged answer with the shards' warnings about its labels."""
    warnings = [part.warnings for part in parts]
    return replace(merged, warnings=merge_warnings(warnings, [label.id for label in merged.labels]))


def merge_rankings(rankings: Sequence[Ranking], firsts: Sequence[int], k: int) -> Ranking:
    """Return the k best labels of all shards: higher scores first, ties by smaller index.

    Args:
        rankings: Of each shard, its best k or all its labels; numbered from 0 on.
        firsts: Index of each shard's first label in the whole.
        k: At least 1.
    """
    labels = [
        np.where(ranking.labels == NO_LABEL, NO_LABEL, ranking.labels + first)
        for ranking, first in zip(rankings, firsts, strict=True)
    ]
    scores = [ranking.scores for ranking in rankings]
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
        given = ", ".join(_shown(bundle.shard) for bundle in bundles)
        raise BundleError(
            f"shards: got {given or 'nothing'}, expected each shard of one model once; split it "
            "with 'longtail registry split'"
        )
    return [by_number[number] for number in range(num_shards)]


def _shown(shard: Shard | None) -> str:
    if shard is None:
        return "a whole model"
    return f"{shard.number} of {shard.num_shards} of {shard.digest[:12]}"
