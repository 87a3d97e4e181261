"""Finding labels by words, ranking some labels only, and the labels nearest to one: milliseconds.

    OMP_NUM_THREADS=1 python tests/bench/labels.py --labels 100000

Labels are made up: names of 4 words and pseudo descriptions of 30, drawn by Zipf's law from 50,000
words; vectors of 384 normal numbers, by which labels are ranked as `retrieval` does. Times are the
processor's, of all threads, the smallest of several rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from machine import begin
from recording import Table, add_json_option, keep

from longtail.models.explain.neighbours import VectorNeighbours
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.filters import LabelFilter
from longtail.models.labels.search import LabelSearch
from longtail.models.labels.selection import LabelSelector
from longtail.models.ranking.index import InnerProductIndex, InnerProductSource
from longtail.models.ranking.threshold_algorithm import SUM, rank

NUM_WORDS, NAME_WORDS, TEXT_WORDS = 50_000, 4, 30
DIM = 384
ROUNDS = 7
K = 10


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=100_000)
    add_json_option(parser)
    options = begin(parser)
    print(f"{options.labels:,} labels, {torch.get_num_threads()} threads\n")
    rng = np.random.default_rng(0)
    words = made_up_words(rng)
    catalogue = made_up_labels(options.labels, words, rng)
    search = measure_search(catalogue, words)
    vectors = rng.standard_normal((options.labels, DIM)).astype(np.float32)
    ranking = measure_ranking(catalogue, vectors, rng)
    nearest = measure_nearest(vectors)
    keep(options.json, {"search": search, "ranking": ranking, "nearest": nearest}, seeds=[0])


def made_up_words(rng: np.random.Generator) -> list[str]:
    """Return words of 3 to 9 letters, the commonest first."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    return ["".join(rng.choice(letters, rng.integers(3, 10))) for _ in range(NUM_WORDS)]


def made_up_labels(
    num_labels: int, words: Sequence[str], rng: np.random.Generator
) -> LabelCatalogue:
    """Return a catalogue of labels with URIs as ids."""
    shares = 1 / np.arange(1, NUM_WORDS + 1)
    drawn = rng.choice(NUM_WORDS, (num_labels, TEXT_WORDS), p=shares / shares.sum())
    texts = ([words[word] for word in row] for row in drawn)
    return LabelCatalogue(
        Label(
            id=f"http://example.org/{number}",
            name=" ".join(text[:NAME_WORDS]),
            pseudo_description=" ".join(text),
            training_count=num_labels // (number + 1),
        )
        for number, text in enumerate(texts)
    )


def least_ms(work: Callable[[], object]) -> float:
    """Return the processor's milliseconds of the quickest of some rounds, after a first one."""
    work()
    times = []
    for _ in range(ROUNDS):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return 1000 * min(times)


def measure_search(catalogue: LabelCatalogue, words: Sequence[str]) -> Table:
    """Return how long the index takes to make, and queries by it."""
    started = time.process_time()
    search = LabelSearch(catalogue)
    print(f"the index of all words is made in {time.process_time() - started:.1f} s\n")
    table = Table({"query": "", "labels found": ",", "ms": ".2f"})
    for what, query in (
        ("none", ""),
        ("one letter", words[0][0]),
        ("the commonest word", words[0]),
        ("beginnings of two common words", f"{words[1][:2]} {words[2][:2]}"),
        ("an id", "http://example.org/77"),
        ("a rare word", words[-1]),
    ):
        total = search.find(query, limit=20).total
        taken = least_ms(lambda query=query: search.find(query, limit=20))  # type: ignore[misc]
        table.add(what, total, taken)
    return table


def measure_ranking(
    catalogue: LabelCatalogue, vectors: np.ndarray, rng: np.random.Generator
) -> Table:
    """Return how long the best labels take where only some may be found."""
    ids = [label.id for label in catalogue]
    index = InnerProductIndex(vectors, np.arange(len(ids), dtype=np.int64))
    selector = LabelSelector(catalogue)
    table = Table({
        "labels that may be found": "", "select, ms": ".2f", f"best {K}: one text, ms": ".1f",
        "64 texts, ms": ".1f",
    })  # fmt: skip
    queries = rng.standard_normal((64, DIM)).astype(np.float32)
    best = np.argsort(-(vectors @ queries[0]))  # the hardest to leave out
    for what, wanted in (
        ("all", None),
        ("10 included", LabelFilter(include=some(ids, rng, 10))),
        ("1,000 included", LabelFilter(include=some(ids, rng, 1000))),
        ("10,000 included", LabelFilter(include=some(ids, rng, 10_000))),
        ("10 excluded", LabelFilter(exclude=some(ids, rng, 10))),
        ("10,000 excluded", LabelFilter(exclude=some(ids, rng, 10_000))),
        ("the best 1,000 excluded", LabelFilter(exclude=tuple(ids[i] for i in best[:1000]))),
    ):
        selection = selector.select(wanted)
        times = [
            least_ms(
                lambda rows=rows, selection=selection: rank(  # type: ignore[misc]
                    [[InnerProductSource(index, rows)]], SUM, K, len(ids), selection
                )
            )
            for rows in (queries[:1], queries)
        ]
        selecting = least_ms(lambda wanted=wanted: selector.select(wanted))  # type: ignore[misc]
        table.add(what, selecting, *times)
    return table


def some(ids: Sequence[str], rng: np.random.Generator, count: int) -> tuple[str, ...]:
    """Return some of the ids, each once."""
    return tuple(ids[row] for row in rng.permutation(len(ids))[:count])


def measure_nearest(vectors: np.ndarray) -> Table:
    """Return how long the nearest labels take."""
    neighbours = VectorNeighbours(vectors, np.zeros(len(vectors), dtype=np.bool_))
    table = Table({"nearest 5 of": "", "ms": ".1f"})
    for count in (1, 10, 100):
        labels = np.arange(count, dtype=np.int64)
        taken = least_ms(lambda labels=labels: neighbours.nearest_to(labels, 5))  # type: ignore[misc]
        table.add(f"{count} labels", taken)
    return table


if __name__ == "__main__":
    main()
