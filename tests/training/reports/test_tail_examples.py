"""Which rare labels a report shows."""

import numpy as np
from scipy.sparse import csr_array

from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.training.reports.tail_examples import (
    FOUND,
    MISSED,
    WRONG,
    TailExample,
    choose_tail_examples,
)


def ranking_of(labels: list[list[int]]) -> Ranking:
    places = np.tile(-np.arange(len(labels[0]), dtype=np.float32), (len(labels), 1))
    return Ranking(np.array(labels), np.where(np.array(labels) == NO_LABEL, -np.inf, places))


def truth_of(true: list[list[int]], num_labels: int) -> csr_array:
    truth = np.zeros((len(true), num_labels), dtype=np.float32)
    for row, labels in enumerate(true):
        truth[row, labels] = 1
    return csr_array(truth)


def pairs_of(examples: list[TailExample]) -> list[tuple[int, int]]:
    return [(example.document, example.label) for example in examples]


def test_all_pairs_are_those_that_naive_loops_find():
    rng = np.random.default_rng(2)
    counts = rng.choice([0, 1, 5, 9, 10, 40], 60)
    ranked = [rng.permutation(60)[:10].tolist() for _ in range(40)]
    true = [rng.permutation(60)[:4].tolist() for _ in range(40)]
    wanted: dict[str, list[tuple[int, int]]] = {FOUND: [], MISSED: [], WRONG: []}
    for row, (best, carried) in enumerate(zip(ranked, true, strict=True)):
        for kind, labels in (
            (FOUND, [y for y in best[:5] if y in carried]),
            (MISSED, [y for y in sorted(carried) if y not in best]),
            (WRONG, [y for y in best[:5] if y not in carried]),
        ):
            for y in labels:
                if 1 <= counts[y] <= 9 and y not in [label for _, label in wanted[kind]]:
                    wanted[kind].append((row, y))
    found = choose_tail_examples(ranking_of(ranked), truth_of(true, 60), counts, count=1000)
    assert {kind: pairs_of(some) for kind, some in found.items()} == wanted
