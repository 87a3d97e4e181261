"""Which labels a filter lets through, and exact top-k among them by every scorer."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.models.errors import RequestError
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.filters import LabelFilter, LabelSet
from longtail.models.labels.selection import LabelSelector, Selection
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking import threshold_algorithm, top_k
from longtail.models.ranking.index import InnerProductIndex, InnerProductSource
from longtail.models.ranking.threshold_algorithm import SUM, rank, rank_given
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.models.scorers.calibration import IDENTITY
from tests.rankings import assert_same

TEXTS = ["river law", "the steel trade and the milk tax", "fish " * 40, "nothing known here"]
NUM_LABELS = 7
CATALOGUE = LabelCatalogue(Label(f"L{i}", f"name {i}") for i in range(NUM_LABELS))


def selected(wanted: LabelFilter | None) -> list[int] | None:
    selection = LabelSelector(CATALOGUE).select(wanted)
    return None if selection is None else selection.labels.tolist()


@pytest.mark.parametrize(
    ("wanted", "labels"),
    [
        (LabelFilter(include=("L3", "L1", "L3")), [1, 3]),
        (LabelFilter(exclude=("L3", "L1")), [0, 2, 4, 5, 6]),
        (LabelFilter(include=("L3", "L1"), exclude=("L3",)), [1]),
        (LabelFilter(include=("L3",), include_set=LabelSet("s", ("L5", "L0"))), [0, 3, 5]),
        (LabelFilter(include_set=LabelSet("s", ("L5",)), exclude=("L5",)), []),
        (LabelFilter(exclude=("L0",), exclude_set=LabelSet("s", ("L1", "L2", "L3"))), [4, 5, 6]),
        (LabelFilter(exclude=tuple(f"L{i}" for i in range(7))), []),
        (LabelFilter(include=()), []),
    ],
)
def test_a_filter_takes_what_is_included_and_leaves_out_what_is_excluded(wanted, labels):
    assert selected(wanted) == labels


def test_a_set_may_have_labels_that_the_version_lacks_but_not_only_such():
    assert selected(LabelFilter(include_set=LabelSet("s", ("L1", "gone")))) == [1]
    assert selected(LabelFilter(exclude_set=LabelSet("s", ("gone",)))) == list(range(NUM_LABELS))
    with pytest.raises(RequestError, match=r"has none of the 2 labels of the set 's'; "):
        selected(LabelFilter(include_set=LabelSet("s", ("gone", "too"))))


class Problem:
    """Two indexes over some labels each, with many ties; and the labels that may be found."""

    def __init__(self, seed: int, share: float, num_labels: int = 40) -> None:
        rng = np.random.default_rng(seed)
        self.sources = []
        self.totals = np.zeros((3, num_labels), dtype=np.float32)
        for _ in range(2):
            labels = np.flatnonzero(rng.random(num_labels) < 0.8)
            labels = np.union1d(labels, [0]).astype(np.int64)
            vectors = rng.integers(-2, 3, (len(labels), 3)).astype(np.float32)
            queries = rng.integers(-1, 2, (3, 3)).astype(np.float32)
            index = InnerProductIndex(vectors, labels)
            self.sources.append(InnerProductSource(index, queries))
            scores = np.full((3, num_labels), -np.inf, dtype=np.float32)
            scores[:, labels] = queries @ vectors.T
            self.totals += scores
        self.selection = Selection(rng.random(num_labels) < share)

    def brute_force(self, k: int) -> Ranking:
        """The oracle: the full ranking, of which the selected labels are kept."""
        labels = np.full((3, k), NO_LABEL, dtype=np.int64)
        scores = np.full((3, k), -np.inf, dtype=np.float32)
        for row, total in enumerate(self.totals):
            order = [
                int(label)
                for label in np.argsort(-total, kind="stable")
                if self.selection.is_selected[label] and total[label] > -np.inf
            ][:k]
            labels[row, : len(order)] = order
            scores[row, : len(order)] = total[order]
        return Ranking(labels, scores)


@given(
    seed=st.integers(0, 10_000),
    share=st.sampled_from([0.0, 0.1, 0.5, 0.95, 1.0]),
    k=st.sampled_from([1, 3, 40]),
)
def test_both_ways_find_what_the_full_ranking_filtered_has(seed, share, k):
    problem = Problem(seed, share)
    wanted = problem.brute_force(k)
    assert_same(rank_given([problem.sources], SUM, k, problem.selection.labels), wanted)
    assert_same(rank([problem.sources], SUM, k, 40, problem.selection), wanted)
    with mock.patch.object(top_k, "_ALWAYS_UP_TO", 0), mock.patch.object(top_k, "_SHARE", 10**9):
        assert_same(rank([problem.sources], SUM, k, 40, problem.selection), wanted)


def test_labels_are_scored_in_parts_where_there_are_many(monkeypatch):
    problem = Problem(5, 0.5)
    monkeypatch.setattr(threshold_algorithm, "MAX_SCORES", 8)
    assert_same(
        rank_given([problem.sources], SUM, 4, problem.selection.labels), problem.brute_force(4)
    )


@pytest.fixture(scope="module", params=["tree", "prior", "blends"])
def predictor(request, parts, constant_blend):
    """A model whose linear scorer is corrected by a tree or by the prior; or with blends."""
    if request.param == "tree":
        return Predictor(parts, device="cpu")
    if request.param == "blends":
        calibrations = {"retrieval": IDENTITY, "linear": IDENTITY, "sparse": IDENTITY}
        blends = {"ensemble": constant_blend({"retrieval": 0.25, "linear": 0.25, "sparse": 0.5})}
        model = replace(parts, has_hybrid=True, calibrations=calibrations, blends=blends)
        return Predictor(model, device="cpu")
    linear = replace(parts.models["linear"], correction="prior", tree=None)
    return Predictor(replace(parts, models={**parts.models, "linear": linear}), device="cpu")


FILTERS = [
    LabelFilter(include=("L0", "L2", "L5", "L6")),
    LabelFilter(exclude=("L0", "L3")),
    LabelFilter(include=("L1", "L2", "L3"), exclude=("L1",)),
    LabelFilter(exclude_set=LabelSet("s", ("L6", "gone"))),
    LabelFilter(include=("L2",), exclude=("L2",)),
]


@pytest.mark.parametrize("up_to", [0, 1024], ids=["sorted access", "random access"])
@pytest.mark.parametrize("label_filter", FILTERS)
@pytest.mark.parametrize("tail_dial", [0.0, 1.5])
def test_every_scorer_ranks_as_its_full_ranking_filtered(
    predictor, monkeypatch, label_filter, tail_dial, up_to
):
    monkeypatch.setattr(top_k, "_ALWAYS_UP_TO", up_to)
    monkeypatch.setattr(top_k, "_SHARE", 1 if up_to else 10**9)
    selection = LabelSelector(predictor.catalogue).select(label_filter)
    assert selection is not None
    for scorer in predictor.scorers.names:
        for correction in {"none", predictor.scorers.correction_of(scorer)}:
            options = {"scorer": scorer, "correction": correction, "tail_dial": tail_dial}
            everything = predictor.predict(TEXTS, k=NUM_LABELS, **options)
            for k in (1, 3, NUM_LABELS):
                found = predictor.predict(TEXTS, k=k, label_filter=label_filter, **options)
                for row, prediction in enumerate(found):
                    kept = [x for x in everything[row].labels if selection.is_selected[x.index]]
                    assert prediction.labels == tuple(kept[:k])
                    assert prediction.exact


def test_a_threshold_holds_among_the_selected(predictor):
    (full,) = predictor.predict(TEXTS[:1], k=NUM_LABELS)
    threshold = full.labels[3].probability
    label_filter = LabelFilter(exclude=(full.labels[1].id,))
    (found,) = predictor.predict(
        TEXTS[:1], k=NUM_LABELS, threshold=threshold, label_filter=label_filter
    )
    assert [label.id for label in found.labels] == [full.labels[i].id for i in (0, 2, 3)]
