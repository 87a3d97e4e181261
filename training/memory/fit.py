"""The documents that a model remembers, and how it weighs them: chosen on the dev split."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32
from joblib import cpu_count
from scipy.sparse import csr_array

from longtail.models.memory.memory import NeighbourMemory
from longtail.models.memory.search import Neighbours, nearest_documents
from longtail.models.memory.source import NeighbourSource
from longtail.models.metrics import join_truth, ndcg_at
from longtail.models.names import NEIGHBOURS
from longtail.training.fitting import DevDocuments, FittedOn, Fitting

logger = logging.getLogger(__name__)
_CUT_OFF = 5


@dataclass(frozen=True, slots=True)
class Candidates:
    """What the scorer of the nearest documents is chosen from (RAE-XMC, arXiv:2502.10615).

    Attributes:
        num_neighbours: Documents that are asked about a text, at most.
        temperature: How much nearer documents count for more: exp(cosine / temperature).
    """

    num_neighbours: tuple[int, ...] = (30, 10, 20, 50, 100)
    temperature: tuple[float, ...] = (0.1, 0.05, 0.07, 0.14, 0.2)


CANDIDATES = Candidates()


class NeighboursFitting(Fitting):
    """Remembers the training documents; how they are weighed is chosen on the dev split, once."""

    name = NEIGHBOURS

    def fit(self, on: FittedOn, settings: None, before: NeighbourMemory | None) -> NeighbourMemory:
        """Return the memory of the documents."""
        del settings
        if before is None:
            return fit_memory(on.features, on.truth, on.ids(), on.dev())
        chosen = Candidates((before.num_neighbours,), (before.temperature,))
        return fit_memory(on.features, on.truth, on.ids(), None, chosen)


def fit_memory(
    features: Float32[csr_array, "document feature"],
    truth: Float32[csr_array, "document label"],
    ids: Sequence[str],
    dev: DevDocuments | None,
    candidates: Candidates = CANDIDATES,
) -> NeighbourMemory:
    """Return a memory of training documents, weighed as ranks the dev split best by nDCG@5.

    Args:
        features: Tf-idf of the training documents.
        truth: Their labels.
        ids: Their ids.
        dev: What to choose on; None: the first candidates are taken, as where there is one of each.
        candidates: Numbers and temperatures.
    """
    memory = NeighbourMemory.of_documents(
        features,
        truth,
        ids,
        num_neighbours=candidates.num_neighbours[0],
        temperature=candidates.temperature[0],
    )
    if len(candidates.num_neighbours) == len(candidates.temperature) == 1:
        return memory
    if dev is None:
        logger.warning(
            "neighbours: no dev split to choose on: %d neighbours, temperature %g",
            memory.num_neighbours, memory.temperature,
        )  # fmt: skip
        return memory
    neighbours = nearest_documents(
        memory, dev.features, max(candidates.num_neighbours), num_threads=cpu_count()
    )
    memories = [
        replace(memory, num_neighbours=number, temperature=temperature)
        for number, temperature in itertools.product(
            candidates.num_neighbours, candidates.temperature
        )
    ]
    values = [_quality(candidate, neighbours, dev) for candidate in memories]
    best = int(np.argmax(values))  # of equal ones the first
    chosen = memories[best]
    logger.info(
        "neighbours: nDCG@%d on dev %.4f with %d neighbours and temperature %g",
        _cut_off(dev), values[best], chosen.num_neighbours, chosen.temperature,
    )  # fmt: skip
    return chosen


def _quality(memory: NeighbourMemory, neighbours: Neighbours, dev: DevDocuments) -> float:
    """Return the nDCG of the labels that the memory ranks for the dev split."""
    source = NeighbourSource(memory, neighbours.first(memory.num_neighbours))
    rows = np.arange(source.num_queries, dtype=np.int64)
    k = _cut_off(dev)
    return ndcg_at(join_truth(source.top(rows, k).labels, dev.truth), k)


def _cut_off(dev: DevDocuments) -> int:
    return min(_CUT_OFF, int(dev.truth.shape[1]))
