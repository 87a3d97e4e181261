"""Any rows of a batch, in any order and number, get from every source what the whole batch got."""

import ast
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longtail.models
from longtail.models.bundle.manifest import Calibration, RarityBlend
from longtail.models.label_tree.corrected_top_k import CorrectedSource, TreeSource
from longtail.models.labels.selection import Selection
from longtail.models.memory.search import nearest_documents
from longtail.models.memory.source import NeighbourSource
from longtail.models.memory.vectors import ByteVectors
from longtail.models.ranking.index import InnerProductSource
from longtail.models.ranking.threshold_algorithm import SUM, SelectedSource, rank, rank_given
from longtail.models.ranking.top_k import NO_LABEL, ListedSource, Source
from longtail.models.scorers.blending import DialledBlend, FittedBlend
from longtail.models.scorers.sparse import SparseSource, Sums, all_sums
from longtail.models.scorers.word_vectors import CosineSource
from tests.models.label_tree.test_corrected_ranking import Problem
from tests.models.memory.test_memory import features_of, memory_of
from tests.models.ranking.test_ranking import listed
from tests.models.scorers.test_sparse import random_problem

NUM_ROWS = 9
NUM_LABELS = 300
SELECTION = Selection(np.arange(NUM_LABELS) % 7 == 3)


def problem() -> Problem:
    return Problem(NUM_LABELS, 5, rows=NUM_ROWS)


def products() -> Source:
    return InnerProductSource(problem().index, problem().vectors)


def corrected() -> Source:
    return CorrectedSource(*problem().bound)


def neighbours() -> Source:
    rng = np.random.default_rng(1)
    memory = memory_of(rng)
    return NeighbourSource(memory, nearest_documents(memory, features_of(rng, NUM_ROWS), 10))


def sparse() -> SparseSource:
    return SparseSource(*random_problem(2))


def sparse_with_sums() -> Source:
    model, features = random_problem(2)
    sums, order = all_sums(model, features, 1), np.random.default_rng(2).permutation(NUM_ROWS)
    values = np.empty_like(sums.values)
    values[order] = sums.values
    return SparseSource(model, features, sums=Sums(values, order))


def cosines() -> Source:
    rng = np.random.default_rng(3)
    queries, labels = rng.standard_normal((NUM_ROWS, 8)), rng.standard_normal((NUM_LABELS, 8))
    vectors = (ByteVectors.rounded(x.astype(np.float32)) for x in (queries, labels))
    return CosineSource(*vectors, np.arange(NUM_LABELS))


SOURCES: dict[str, Callable[[], Source]] = {
    "InnerProductSource": products,
    "TreeSource": lambda: TreeSource(problem().tree, problem().vectors),
    "CorrectedSource": corrected,
    "NeighbourSource": neighbours,
    "ListedSource": lambda: ListedSource(
        listed(np.where(SELECTION.is_selected, products_of_all(), np.float32(-np.inf)))
    ),
    "SparseSource": sparse,
    "SparseSource, sums given": sparse_with_sums,
    "SparseSource, some labels": lambda: sparse().among(SELECTION),
    "CosineSource": cosines,
    "SelectedSource": lambda: SelectedSource(products(), SELECTION),
    "SelectedSource of CorrectedSource": lambda: SelectedSource(corrected(), SELECTION),
}


def products_of_all() -> np.ndarray:
    found = problem()
    every = np.tile(np.arange(NUM_LABELS), (NUM_ROWS, 1))
    return found.index.score(found.vectors, every)


def test_all_sources_are_tried():
    """A class that has `top`, `score` and `num_queries` is a source."""

    def defined(each: ast.ClassDef) -> set[str]:
        return {x.name for x in each.body if isinstance(x, ast.FunctionDef)}

    classes = (
        each
        for folder in longtail.models.__path__
        for path in Path(folder).rglob("*.py")
        for each in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(each, ast.ClassDef)
    )
    found = {
        each.name
        for each in classes
        if {"top", "score"} <= defined(each) and "num_queries" in ast.unparse(each)
    }
    assert found - {"Source"} == {name.split(",")[0].split(" ")[0] for name in SOURCES}


@pytest.fixture(scope="module", params=SOURCES)
def source(request):
    return SOURCES[request.param]()


@given(
    rows=st.lists(st.integers(0, NUM_ROWS - 1), max_size=NUM_ROWS + 3),
    m=st.sampled_from([1, 3, 10, 70, NUM_LABELS]),
    first_depth=st.sampled_from([1, 64]),
)
@settings(max_examples=20)
def test_some_rows_are_those_of_the_whole_batch(source, rows, m, first_depth):
    """One, the last, falling, repeated, none: the same labels and scores, to the bit."""
    every = np.arange(source.num_queries)
    with mock.patch("longtail.models.ranking.threshold_algorithm._FIRST_DEPTH", first_depth):
        whole = source.top(every, m)
        for some in (
            np.array(rows, dtype=np.int64),
            every[-1:],
            every[::-1].copy(),
            every[[4, 4, 1]],
        ):
            found = source.top(some, m)
            np.testing.assert_array_equal(found.labels, whole.labels[some])
            np.testing.assert_array_equal(found.scores, whole.scores[some])
            scores = source.score(some, found.labels)
            scores[found.labels == NO_LABEL] = -np.inf
            np.testing.assert_array_equal(scores, found.scores)


def blend() -> DialledBlend:
    curve = Calibration(knots=(0.0,), slopes=(1.0, 1.0), intercept=0.0)
    fitted = RarityBlend(
        counts=(0,), intercepts=(0.0,), weights={"a": (0.6,), "b": (0.4,)},
        floors={"a": -14.0, "b": -14.0},
    )  # fmt: skip
    zeros = np.zeros(NUM_LABELS, dtype=np.float32)
    counts = np.ones(NUM_LABELS, dtype=np.int64)
    return DialledBlend.of(FittedBlend(fitted, [curve, curve], counts, zeros), 0.0)


@pytest.mark.parametrize("selection", [None, SELECTION], ids=["all labels", "some"])
@pytest.mark.parametrize("scorers", [[corrected], [corrected, products]], ids=["alone", "blended"])
def test_corrected_scores_are_ranked_in_rounds_alone_and_in_a_blend(scorers, selection):
    """The rounds after the first ask for some rows of the batch."""
    scorers = [[make()] for make in scorers]
    combine = SUM if len(scorers) == 1 else blend()
    labels = np.arange(NUM_LABELS) if selection is None else selection.labels
    wanted = rank_given(scorers, combine, 10, labels)
    with (
        mock.patch("longtail.models.ranking.threshold_algorithm._FIRST_DEPTH", 1),
        mock.patch("longtail.models.ranking.top_k._ALWAYS_UP_TO", 0),
    ):
        found = rank(scorers, combine, 10, NUM_LABELS, selection)
    np.testing.assert_array_equal(found.labels, wanted.labels)
    np.testing.assert_array_equal(found.scores, wanted.scores)
