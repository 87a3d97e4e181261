"""Intervals that hold what other seeds and other documents would have said: a two-level bootstrap.

Documents are the same for all seeds, so both are drawn independently of each other, with
replacement (Davison & Hinkley 1997, section 3.8; the crossed design of Owen 2007). Every ranking
is measured on the same draws, so that differences of two are paired in both.

Macro-F1 is left out: a rare label is true in one or two documents, which a third of the draws lack,
so that its draws lie far below the sample. Its tests are over labels
(`longtail.training.evaluation.significance.macro_t_test`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy import stats

from longtail.models.errors import DataError
from longtail.models.metrics import RankedEvaluation, document_values_at

NUM_DRAWS = 1000
_TAIL = 2.5
"""Percent on either side of an interval."""
_ROUNDING = 1e-12
"""Differences below it are none."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and its 95 % interval.

    Attributes:
        value: The mean over the seeds, on all documents as they are.
        low: Lower end.
        high: Upper end.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Draws:
    """How often each document, and each seed, is in every draw.

    Attributes:
        documents: The first row has every document once.
        seeds: Likewise; each row adds up to the number of seeds.
    """

    documents: Float64[np.ndarray, "draw document"]
    seeds: Float64[np.ndarray, "draw seed"]

    @classmethod
    def of(
        cls,
        groups: Int64[np.ndarray, document],
        num_seeds: int,
        *,
        num_draws: int = NUM_DRAWS,
        seed: int = 0,
    ) -> Draws:
        """Draw seeds and groups of documents, and put the sample itself in front.

        Args:
            groups: Documents of one number, such as those of one text, are drawn together.
            num_seeds: With one, only documents are drawn.
            num_draws: Number of draws.
            seed: Seed of the draws.
        """
        rng = np.random.default_rng(seed)
        _, members = np.unique(groups, return_inverse=True)
        num_groups = int(members.max()) + 1
        times = rng.multinomial(num_groups, np.full(num_groups, 1 / num_groups), size=num_draws)
        seeds = rng.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), size=num_draws)
        return cls(
            np.vstack([np.ones(len(groups)), times[:, members]]),
            np.vstack([np.ones(num_seeds), seeds.astype(np.float64)]),
        )


def measured_on(
    draws: Draws,
    by_seed: Sequence[RankedEvaluation],
    weights: Float64[np.ndarray, label],
    subsets: Mapping[str, Bool[np.ndarray, label]],
    *,
    k: int = 5,
    recall_k: int = 10,
) -> dict[str, Float64[np.ndarray, draw]]:
    """Return metrics of a ranking on every draw: the mean over the seeds that were drawn.

    Args:
        draws: Draws of the documents and seeds; the first entry of each metric is that of the
            sample.
        by_seed: The ranking of each seed beside the truth; it is one truth.
        weights: Inverse propensities.
        subsets: Labels for which R@`recall_k` is returned too, by name.
        k: k of P, nDCG and PSP.
        recall_k: k of R.
    """
    if len(by_seed) != draws.seeds.shape[1]:
        raise DataError(f"bootstrap: {len(by_seed)} rankings for {draws.seeds.shape[1]} seeds")
    found: dict[str, list[Float64[np.ndarray, draw]]] = {}
    for joined in by_seed:
        if joined.num_documents != draws.documents.shape[1]:
            raise DataError(
                f"bootstrap: a ranking of {joined.num_documents} documents, of which "
                f"{draws.documents.shape[1]} were drawn"
            )
        for name, values in _of_seed(draws, joined, weights, subsets, k, recall_k):
            found.setdefault(name, []).append(values)
    num_seeds = draws.seeds.shape[1]
    return {
        name: (np.stack(values, axis=1) * draws.seeds).sum(axis=1) / num_seeds
        for name, values in found.items()
    }


def interval_of(values: Float64[np.ndarray, draw]) -> Interval:
    """Return the interval between percentiles of the draws behind the first."""
    low, high = np.percentile(values[1:], (_TAIL, 100 - _TAIL))
    return Interval(float(values[0]), float(low), float(high))


def two_sided_p(differences: Float64[np.ndarray, draw]) -> float:
    """Return the p-value of no difference: that of a normal error as wide as the draws are.

    Their shares on either side of 0 can't be smaller than one in their number, which many tests at
    once would need. Without any spread it is 1 for no difference, else 0.
    """
    difference, spread = float(differences[0]), float(differences[1:].std(ddof=1))
    if spread < _ROUNDING:
        return 1.0 if abs(difference) < _ROUNDING else 0.0
    return float(2 * stats.norm.sf(abs(difference) / spread))


def _of_seed(
    draws: Draws,
    joined: RankedEvaluation,
    weights: Float64[np.ndarray, label],
    subsets: Mapping[str, Bool[np.ndarray, label]],
    k: int,
    recall_k: int,
) -> Iterator[tuple[str, Float64[np.ndarray, draw]]]:
    times = draws.documents
    num_drawn = times.sum(axis=1)
    for metric in (1, k):
        name = f"P@{metric}"
        yield name, times @ document_values_at(joined, metric, weights)[name] / num_drawn
    values = document_values_at(joined, k, weights)
    yield f"nDCG@{k}", times @ values[f"nDCG@{k}"] / num_drawn
    attainable = _attainable(joined, k, weights)
    gained = values[f"PSP@{k}"] * (attainable.sum() / joined.num_documents)
    yield f"PSP@{k}", _ratios(times @ gained, times @ attainable)
    for name, is_in_subset in subsets.items():
        recall, has_labels = _recall(joined, recall_k, is_in_subset)
        yield f"R@{recall_k} ({name})", _ratios(times @ recall, times @ has_labels)


def _attainable(
    joined: RankedEvaluation, k: int, weights: Float64[np.ndarray, label]
) -> Float64[np.ndarray, document]:
    """Return the k largest weights of each document's true labels, summed."""
    own = weights[joined.true_labels]
    order = np.lexsort((-own, joined.true_rows))
    rows, own = joined.true_rows[order], own[order]
    starts = np.searchsorted(rows, rows)
    is_counted = np.arange(len(rows)) - starts < k
    return np.bincount(rows, own * is_counted, minlength=joined.num_documents)


def _recall(
    joined: RankedEvaluation, k: int, is_in_subset: Bool[np.ndarray, label]
) -> tuple[Float64[np.ndarray, document], Float64[np.ndarray, document]]:
    """Return R@k of each document over the labels of a subset, and whether it has any."""
    labels, is_hit = joined.top(k)
    hits = (is_hit & is_in_subset[labels]).sum(axis=1)  # `NO_LABEL` is never a hit
    is_true = is_in_subset[joined.true_labels]
    num_true = np.bincount(joined.true_rows[is_true], minlength=joined.num_documents)
    return hits / np.maximum(num_true, 1), (num_true > 0).astype(np.float64)


def _ratios(
    numerators: Float64[np.ndarray, "*shape"], denominators: Float64[np.ndarray, "*shape"]
) -> Float64[np.ndarray, "*shape"]:
    """Return the quotients; 0 where there is nothing to divide by."""
    found: Float64[np.ndarray, "*shape"] = np.zeros(np.shape(numerators))
    np.divide(numerators, denominators, out=found, where=denominators > 0)
    return found
