"""Blends ranked by the Threshold Algorithm, against a full sort of blends of all labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from models.bundle.manifest import Calibration
from models.labels.selection import Selection
from models.ranking.threshold_algorithm import Sources, rank
from models.ranking.top_k import NO_LABEL, Ranking, top_of_scores
from models.scorers.blending import Blend, Member, mean_of_sigmoids, weighted_blend
from models.scorers.calibration import IDENTITY

BENT = Calibration(knots=(-0.5, 1.0), slopes=(0.5, 2.0, 1.0), intercept=-1.0)
STEEP = Calibration(knots=(0.0,), slopes=(40.0, 40.0), intercept=0.0)
CALIBRATIONS = (IDENTITY, BENT, STEEP)
TIED = st.sampled_from([-1.0, 0.0, 0.5, 60.0])
SPREAD = st.floats(-20, 20, width=16).map(float)


class DenseSource:
    """A `Source` over a matrix of scores; -inf where a label can't be scored."""

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = scores
        self.num_queries = len(scores)
        self.num_labels = int(np.isfinite(scores).any(axis=0).sum())
        self.num_read = 0

    def top(self, rows: np.ndarray, m: int) -> Ranking:
        self.num_read = max(self.num_read, m)
        return top_of_scores(self.scores[rows], m)

    def score(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        found = np.take_along_axis(self.scores[rows], np.maximum(labels, 0), axis=1)
        return np.where(labels == NO_LABEL, np.float32(-np.inf), found)


@contextmanager
def shallow(first_named: int = 1) -> Iterator[None]:
    """Many rounds even of few labels."""
    with (
        mock.patch("models.ranking.threshold_algorithm._FIRST_DEPTH", first_named),
        mock.patch("models.ranking.exhaustive._ALWAYS_UP_TO", 0),
    ):
        yield


def ranked(
    blend: Blend,
    sources: list[Sources],
    k: int,
    dial: float = 0.0,
    selection: Selection | None = None,
) -> Ranking:
    num_labels = sources[0][0].scores.shape[1]
    return rank(sources, blend.with_tail_dial(dial), k, num_labels, selection)


def log_priors(num_labels: int) -> np.ndarray:
    shares = 1 + np.arange(num_labels) * 7 % 5
    return np.log(shares / shares.sum()).astype(np.float32)


def wanted(blend: Blend, parts: list[list[np.ndarray]], k: int, dial: float, some=None) -> Ranking:
    """The oracle: the blends of all labels, written out, and a full sort."""
    mean = np.zeros(parts[0][0].shape)
    is_scored = np.zeros(mean.shape, dtype=bool)
    for member, scores in zip(blend.members, parts, strict=True):
        total = scores[0] if len(scores) == 1 else scores[0] + scores[1]
        line = member.calibration
        x = np.where(np.isneginf(total), 0, total).astype(np.float64)
        log_odds = line.intercept + line.slopes[0] * np.minimum(x - line.knots[0], 0)
        for start, stop, slope in zip(
            line.knots, (*line.knots[1:], np.inf), line.slopes[1:], strict=True
        ):
            log_odds += slope * (np.clip(x, start, stop) - start)
        probability = np.where(np.isneginf(total), 0, 1 / (1 + np.exp(-np.maximum(log_odds, -700))))
        mean += member.weight * probability
        is_scored |= ~np.isneginf(total)
    mean = np.clip(mean, 1e-300, 1 - 2.0**-53)
    blended = np.log(mean / (1 - mean)) - dial * log_priors(mean.shape[1]).astype(np.float64)
    blended[~is_scored] = -np.inf
    if some is not None:
        blended[:, ~some] = -np.inf
    return top_of_scores(blended.astype(np.float32), k)


def blend_of(num: int, num_labels: int) -> Blend:
    weights = {0: 0.5, 1: 0.3, 2: 0.2}
    members = [Member(str(i), weights[i], CALIBRATIONS[i]) for i in range(num)]
    return Blend(members, log_priors(num_labels))


def sources_of(parts: list[list[np.ndarray]]) -> list[Sources]:
    return [[DenseSource(scores) for scores in member] for member in parts]


def draw_problem(data: st.DataObject) -> tuple[Blend, list[list[np.ndarray]], int]:
    """Scorers of one or two sources, some of which know only some labels."""
    draw = data.draw
    rows, num_labels, num = (
        draw(st.integers(1, 3)),
        draw(st.integers(1, 20)),
        draw(st.integers(1, 3)),
    )
    elements = draw(st.sampled_from([TIED, SPREAD]))
    parts = []
    for place in range(num):
        shape = (rows, num_labels)
        member = [draw(arrays(np.float32, shape, elements=elements)) for _ in range(1 + place % 2)]
        unknown = draw(st.sets(st.integers(0, num_labels - 1), max_size=num_labels - 1))
        for scores in member[:1]:
            scores[:, sorted(unknown)] = -np.inf
        parts.append(member)
    return blend_of(num, num_labels), parts, draw(st.integers(1, num_labels + 2))


def assert_ranks(found: Ranking, right: Ranking) -> None:
    """The scores are right, and so are the labels where no rounding decides."""
    np.testing.assert_allclose(found.scores, right.scores, rtol=1e-5, atol=1e-5)
    finite = np.where(np.isneginf(right.scores), -1e9, right.scores)
    gaps = np.abs(np.diff(finite, axis=1, prepend=1e9, append=-2e9))
    is_clear = (gaps[:, :-1] > 1e-4) & (gaps[:, 1:] > 1e-4)
    np.testing.assert_array_equal(found.labels[is_clear], right.labels[is_clear])


@settings(max_examples=60)
@given(data=st.data(), dial=st.sampled_from([0.0, 0.5, 30.0]))
def test_blends_are_ranked_as_a_full_sort_ranks_them(data: st.DataObject, dial: float) -> None:
    blend, parts, k = draw_problem(data)
    with shallow():
        found = ranked(blend, sources_of(parts), k, dial)
    assert_ranks(found, wanted(blend, parts, k, dial))


@settings(max_examples=60)
@given(data=st.data(), dial=st.sampled_from([0.0, 0.5, 30.0]))
def test_both_ways_give_the_same_to_the_bit(data: st.DataObject, dial: float) -> None:
    blend, parts, k = draw_problem(data)
    everything = ranked(blend, sources_of(parts), k, dial)  # so few labels are all scored
    with shallow():
        found = ranked(blend, sources_of(parts), k, dial)
    np.testing.assert_array_equal(found.labels, everything.labels)
    np.testing.assert_array_equal(found.scores, everything.scores)


@settings(max_examples=40)
@given(data=st.data(), dial=st.sampled_from([0.0, 1.0]))
def test_selected_labels_are_ranked_alone(dial: float, data: st.DataObject) -> None:
    blend, parts, k = draw_problem(data)
    num_labels = parts[0][0].shape[1]
    some = np.array(data.draw(st.lists(st.booleans(), min_size=num_labels, max_size=num_labels)))
    assume(some.any())
    selection = Selection(some)
    right = wanted(blend, parts, k, dial, some)
    assert_ranks(ranked(blend, sources_of(parts), k, dial, selection), right)
    with shallow(), mock.patch("models.ranking.exhaustive._SHARE", 10**9):
        assert_ranks(ranked(blend, sources_of(parts), k, dial, selection), right)


def test_equal_blends_come_by_their_index() -> None:
    scores = np.array([[0, 2, 2, -1, 2]], dtype=np.float32)
    blend = mean_of_sigmoids(("a", "b"), log_priors(5))
    with shallow():
        found = ranked(blend, [[DenseSource(scores)], [DenseSource(scores[:, ::-1].copy())]], 5)
    # 1 and 3 tie (2 and -1, -1 and 2), so do 0 and 4.
    assert found.labels.tolist() == [[2, 0, 4, 1, 3]]


def test_a_label_that_one_scorer_does_not_know_has_half_the_others_probability() -> None:
    first = np.array([[3.0, 3.0]], dtype=np.float32)
    second = np.array([[-np.inf, -2.0]], dtype=np.float32)
    blend = mean_of_sigmoids(("first", "second"), log_priors(2))
    found = ranked(blend, [[DenseSource(first)], [DenseSource(second)]], 2)
    halves = 1 / (1 + np.exp([-3.0, 2.0])) / 2
    means = np.array([halves.sum(), halves[0]])
    assert found.labels.tolist() == [[1, 0]]
    np.testing.assert_allclose(found.scores, [np.log(means / (1 - means))], rtol=1e-5)


def test_a_label_that_no_scorer_knows_is_not_ranked() -> None:
    scores = np.array([[1.0, -np.inf, 0.0]], dtype=np.float32)
    blend = mean_of_sigmoids(("a",), log_priors(3))
    with shallow():
        found = ranked(blend, [[DenseSource(scores)]], 3, 2.0)
    assert sorted(found.labels[0].tolist()) == [NO_LABEL, 0, 2]
    assert found.scores[0, -1] == -np.inf


def test_probabilities_that_round_to_1_still_have_finite_scores_in_order() -> None:
    scores = np.array([[5.0, 900.0, 38.0, 30.0]], dtype=np.float32)
    blend = mean_of_sigmoids(("a",), log_priors(4))
    with shallow():
        found = ranked(blend, [[DenseSource(scores)]], 4)
    assert found.labels.tolist() == [[1, 2, 3, 0]]
    assert np.isfinite(found.scores).all()


def test_scorers_that_agree_are_read_little() -> None:
    rng = np.random.default_rng(0)
    base = 3 * rng.normal(size=(1, 10_000)).astype(np.float32) - 8
    noise = rng.normal(scale=0.3, size=(2, 1, 10_000)).astype(np.float32)
    sources = [DenseSource(base + one) for one in noise]
    blend = mean_of_sigmoids(("a", "b"), log_priors(10_000))
    found = ranked(blend, [[one] for one in sources], 5)
    assert_ranks(found, wanted(blend, [[one.scores] for one in sources], 5, 0.0))
    assert max(source.num_read for source in sources) < 500


def test_scorers_of_weight_0_take_no_part() -> None:
    calibrations = {"a": IDENTITY, "b": BENT, "c": STEEP}
    blend = weighted_blend({"a": 0.25, "b": 0.0, "c": 0.75}, calibrations, log_priors(2))
    assert [(member.name, member.weight) for member in blend.members] == [("a", 0.25), ("c", 0.75)]


@pytest.mark.parametrize("num_labels", [5, 2000])
def test_no_queries_have_no_ranking(num_labels: int) -> None:
    source = DenseSource(np.empty((0, num_labels), dtype=np.float32))
    source.num_labels = num_labels
    blend = mean_of_sigmoids(("a",), log_priors(num_labels))
    assert ranked(blend, [[source]], 2).labels.shape == (0, 2)
