"""Intervals that hold what other seeds and other documents would have said: a two-level bootstrap.

Documents are the same for all seeds, so both are drawn independently of each other, with
replacement (Davison & Hinkley 1997, section 3.8; the crossed design of Owen 2007). Every ranking
is measured on the same draws, so that differences of two are paired in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.sparse import csr_array

from models.errors import DataError
from models.ranking.top_k import NO_LABEL
from training.evaluation.metrics import RankedEvaluation, document_values_at

NUM_DRAWS = 1000
_CHUNK = 50
"""Draws at a time: label tables of so many are held."""
_TAIL = 2.5
"""Percent on either side of an interval."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and where it lies with a probability of 95 %.

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
            num_draws: So many.
            seed: Of the drawing.
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
        draws: Of the documents and seeds; the first entry of each metric is that of the sample.
        by_seed: The ranking of each seed beside the truth; it is one truth.
        weights: Inverse propensities.
        subsets: Labels for which macro-F1@k and R@`recall_k` are returned too, by name.
        k: Of P, nDCG, PSP and macro-F1.
        recall_k: Of R.

    Raises:
        DataError: There are more or fewer rankings than seeds, or documents than were drawn.
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
    """Return twice the share of draws on the other side of 0; one is added, so it is never 0."""
    drawn = differences[1:]
    fewer = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    return min(1.0, 2 * (fewer + 1) / (len(drawn) + 1))


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
        yield f"macro-F1@{k} ({name})", _macro_f1(times, joined, k, np.flatnonzero(is_in_subset))
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


def _macro_f1(
    times: Float64[np.ndarray, "draw document"],
    joined: RankedEvaluation,
    k: int,
    subset: Int64[np.ndarray, label],
) -> Float64[np.ndarray, draw]:
    """Return macro-F1@k over a subset of the labels on every draw."""
    if not len(subset):
        return np.zeros(len(times))
    ranked, is_hit = joined.top(k)
    rows, places = np.nonzero(ranked != NO_LABEL)
    shape = (joined.num_documents, joined.num_labels)

    def table(rows: np.ndarray, labels: np.ndarray) -> csr_array:
        return csr_array((np.ones(len(rows)), (rows, labels)), shape=shape)[:, subset]

    hits = table(np.nonzero(is_hit)[0], ranked[is_hit])
    counted = table(rows, ranked[rows, places]) + table(joined.true_rows, joined.true_labels)
    found = np.empty(len(times))
    for start in range(0, len(times), _CHUNK):
        part = times[start : start + _CHUNK]
        f1 = _ratios(2 * (part @ hits), part @ counted)
        found[start : start + _CHUNK] = f1.mean(axis=1)
    return found


def _ratios(
    numerators: Float64[np.ndarray, "*shape"], denominators: Float64[np.ndarray, "*shape"]
) -> Float64[np.ndarray, "*shape"]:
    """Return the quotients; 0 where there is nothing to divide by."""
    found: Float64[np.ndarray, "*shape"] = np.zeros(np.shape(numerators))
    np.divide(numerators, denominators, out=found, where=denominators > 0)
    return found
