"""Blends ranked by the Threshold Algorithm, against a full sort of blends of all labels."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from longtail.models.bundle.manifest import Calibration, RarityBlend
from longtail.models.labels.selection import Selection
from longtail.models.ranking.threshold_algorithm import Sources, rank
from longtail.models.ranking.top_k import Ranking, top_of_scores
from longtail.models.scorers.blending import (
    Blend,
    DialledBlend,
    FittedBlend,
    MeanBlend,
    knot_shares,
)
from longtail.models.scorers.calibration import IDENTITY
from tests.closeness import assert_all_close
from tests.rankings import DenseSource, shallow

BENT = Calibration(knots=(-0.5, 1.0), slopes=(0.5, 2.0, 1.0), intercept=-1.0)
STEEP = Calibration(knots=(0.0,), slopes=(40.0, 40.0), intercept=0.0)
CALIBRATIONS = (IDENTITY, BENT, STEEP)
KNOTS = ((0,), (0, 1), (0, 1, 3, 10), (0, 100, 1000), (0, 2, 3, 4, 5, 6, 1000))
TIED = st.sampled_from([-1.0, 0.0, 0.5, 60.0])
SPREAD = st.floats(-20, 20, width=16).map(float)


def ranked(
    blend: Blend,
    sources: list[Sources],
    k: int,
    dial: float = 0.0,
    selection: Selection | None = None,
) -> Ranking:
    num_labels = sources[0][0].scores.shape[1]
    return rank(sources, DialledBlend.of(blend, dial), k, num_labels, selection)


def log_priors(num_labels: int) -> np.ndarray:
    shares = 1 + np.arange(num_labels) * 7 % 5
    return np.log(shares / shares.sum()).astype(np.float32)


def wanted(blend: Blend, parts: list[list[np.ndarray]], k: int, dial: float, some=None) -> Ranking:
    """The oracle: the blends of all labels, written out, and a full sort."""
    totals = [scores[0] if len(scores) == 1 else scores[0] + scores[1] for scores in parts]
    log_odds = mean_of if isinstance(blend, MeanBlend) else fitted_of
    blended = log_odds(blend, totals) - dial * blend.log_priors.astype(np.float64)
    blended[np.all(np.isneginf(totals), axis=0)] = -np.inf
    if some is not None:
        blended[:, ~some] = -np.inf
    return top_of_scores(blended.astype(np.float32), k)


def mean_of(blend: MeanBlend, totals: list[np.ndarray]) -> np.ndarray:
    """The log-odds of the mean of the sigmoids."""
    mean = np.zeros(totals[0].shape)
    for total in totals:
        x = np.maximum(total.astype(np.float64), -700)
        mean += np.where(np.isneginf(total), 0, 1 / (1 + np.exp(-x))) / len(totals)
    mean = np.clip(mean, 1e-300, 1 - 2.0**-53)
    return np.log(mean / (1 - mean))


def fitted_of(blend: FittedBlend, totals: list[np.ndarray]) -> np.ndarray:
    """A sum whose weights are interpolated label by label."""
    fitted, counts = PROBLEM[blend]
    blended = np.empty(totals[0].shape)
    for label, count in enumerate(counts.tolist()):
        place, knots = np.log(1 + count), np.log(1 + np.array(fitted.counts))
        blended[:, label] = np.interp(place, knots, fitted.intercepts)
        for name, line, total in zip(fitted.weights, CALIBRATIONS, totals, strict=False):
            given, floor = line_at(line, total[:, label]), fitted.floors[name]
            blended[:, label] += np.interp(place, knots, fitted.weights[name]) * np.maximum(
                given, floor
            )
            lower = np.where(np.isneginf(given), 0, np.minimum(np.maximum(given, -14) - floor, 0))
            below = fitted.below.get(name, np.zeros(len(knots)))
            blended[:, label] += np.interp(place, knots, below) * lower
        if fitted.curve_bends:
            slopes = tuple(np.interp(place, knots, row) for row in fitted.curve_slopes)
            curve = Calibration(
                fitted.curve_bends, slopes, np.interp(place, knots, fitted.curve_levels)
            )
            blended[:, label] = line_at(curve, blended[:, label])
    return blended


def line_at(line: Calibration, scores: np.ndarray) -> np.ndarray:
    """The calibrated log-odds of scores."""
    is_known = ~np.isneginf(scores)
    x = np.where(is_known, scores, 0).astype(np.float64)
    log_odds = line.intercept + line.slopes[0] * np.minimum(x - line.knots[0], 0)
    for start, stop, slope in zip(
        line.knots, (*line.knots[1:], np.inf), line.slopes[1:], strict=True
    ):
        log_odds += slope * (np.clip(x, start, stop) - start)
    return np.where(is_known, log_odds, -np.inf)


PROBLEM: dict[Blend, tuple[RarityBlend, np.ndarray]] = {}
"""What fitted blends were made of, for the oracle."""


def fitted_blend(fitted: RarityBlend, counts: np.ndarray) -> FittedBlend:
    calibrations = CALIBRATIONS[: len(fitted.weights)]
    blend = FittedBlend(fitted, calibrations, counts, log_priors(len(counts)))
    PROBLEM.clear()
    PROBLEM[blend] = fitted, counts
    return blend


def draw_blend(draw, num: int, num_labels: int) -> Blend:
    """The mean, or weights at some knots, beyond which there may be no label."""
    names = [str(i) for i in range(num)]
    if draw(st.booleans()):
        return MeanBlend(names, log_priors(num_labels))
    knots = draw(st.sampled_from(KNOTS))

    def row(least: float) -> tuple[float, ...]:
        numbers = st.sampled_from([least, 0.0, 0.5, 1.0]) | st.floats(least, 3)
        return tuple(draw(st.tuples(*[numbers] * len(knots))))

    bends = draw(st.sampled_from([(), (-1.0,), (-6.0, -0.5, 2.0)]))
    fitted = RarityBlend(
        counts=knots,
        intercepts=row(-3.0),
        weights={name: row(0.0) for name in names},
        floors={name: draw(st.sampled_from([-14.0, -2.5, 0.0])) for name in names},
        below={name: row(0.0) for name in names if draw(st.booleans())},
        curve_bends=bends,
        curve_levels=row(-3.0),
        curve_slopes=tuple(row(0.05) for _ in range(len(bends) + 1)) if bends else (),
    )
    counts = draw(st.lists(st.integers(0, 50), min_size=num_labels, max_size=num_labels))
    return fitted_blend(fitted, np.array(counts))


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
    return draw_blend(draw, num, num_labels), parts, draw(st.integers(1, num_labels + 2))


def assert_ranks(found: Ranking, right: Ranking) -> None:
    """The scores are right, and so are the labels where no rounding decides."""
    np.testing.assert_allclose(found.scores, right.scores, rtol=1e-5, atol=1e-5)
    finite = np.where(np.isneginf(right.scores), -1e9, right.scores)
    gaps = np.abs(np.diff(finite, axis=1, prepend=1e9, append=-2e9))
    is_clear = (gaps[:, :-1] > 1e-4) & (gaps[:, 1:] > 1e-4)
    np.testing.assert_array_equal(found.labels[is_clear], right.labels[is_clear])


@settings(max_examples=40)
@given(data=st.data(), dial=st.sampled_from([0.0, 0.5, 30.0]))
def test_blends_are_ranked_as_a_full_sort_ranks_them(data, dial):
    blend, parts, k = draw_problem(data)
    with shallow():
        found = ranked(blend, sources_of(parts), k, dial)
    assert_ranks(found, wanted(blend, parts, k, dial))


@settings(max_examples=40)
@given(data=st.data(), dial=st.sampled_from([0.0, 0.5, 30.0]))
def test_both_ways_give_the_same_to_the_bit(data, dial):
    blend, parts, k = draw_problem(data)
    everything = ranked(blend, sources_of(parts), k, dial)  # so few labels are all scored
    with shallow():
        found = ranked(blend, sources_of(parts), k, dial)
    np.testing.assert_array_equal(found.labels, everything.labels)
    np.testing.assert_array_equal(found.scores, everything.scores)


@settings(max_examples=40)
@given(data=st.data(), dial=st.sampled_from([0.0, 1.0]))
def test_selected_labels_are_ranked_alone(dial, data):
    blend, parts, k = draw_problem(data)
    num_labels = parts[0][0].shape[1]
    some = np.array(data.draw(st.lists(st.booleans(), min_size=num_labels, max_size=num_labels)))
    assume(some.any())
    selection = Selection(some)
    right = wanted(blend, parts, k, dial, some)
    assert_ranks(ranked(blend, sources_of(parts), k, dial, selection), right)
    with shallow(), mock.patch("longtail.models.ranking.top_k._SHARE", 10**9):
        assert_ranks(ranked(blend, sources_of(parts), k, dial, selection), right)


def test_a_label_that_one_scorer_does_not_know_has_half_the_others_probability():
    first = np.array([[3.0, 3.0]], dtype=np.float32)
    second = np.array([[-np.inf, -2.0]], dtype=np.float32)
    blend = MeanBlend(("first", "second"), log_priors(2))
    found = ranked(blend, [[DenseSource(first)], [DenseSource(second)]], 2)
    halves = 1 / (1 + np.exp([-3.0, 2.0])) / 2
    means = np.array([halves.sum(), halves[0]])
    assert found.labels.tolist() == [[1, 0]]
    assert_all_close(found.scores, [np.log(means / (1 - means))], rtol=1e-5)


def test_probabilities_that_round_to_1_still_have_finite_scores_in_order():
    scores = np.array([[5.0, 900.0, 38.0, 30.0]], dtype=np.float32)
    blend = MeanBlend(("a",), log_priors(4))
    with shallow():
        found = ranked(blend, [[DenseSource(scores)]], 4)
    assert found.labels.tolist() == [[1, 2, 3, 0]]
    assert np.isfinite(found.scores).all()


@settings(max_examples=40)
@given(
    data=st.data(), dial=st.sampled_from([0.0, 0.5, 30.0]), scale=st.sampled_from([1, 1e-3, 1e4])
)
def test_no_label_that_is_not_named_exceeds_the_bound(data, dial, scale):
    """Not by a single bit, or a ranking would be certified that is none."""
    blend, parts, _ = draw_problem(data)
    num_labels = parts[0][0].shape[1]
    scores = np.stack([member[0] for member in parts]) * np.float32(scale)  # (member, row, label)
    labels = np.tile(np.arange(num_labels), (scores.shape[1], 1))
    dialled = DialledBlend.of(blend, dial)
    combined = dialled.combine(scores, labels)
    depth = data.draw(st.integers(1, num_labels))
    unnamed = np.setdiff1d(np.arange(num_labels), dialled.leading(depth))
    assume(len(unnamed))
    frontiers = scores[:, :, unnamed].max(axis=2)
    assert (combined[:, unnamed].max(axis=1) <= dialled.bound(frontiers, depth)).all()


@settings(max_examples=40)
@given(data=st.data())
def test_labels_have_the_same_weights_to_the_bit_among_few_and_many(data):
    """So what is fitted over the first labels of a model holds for the whole model."""
    counts = np.array(data.draw(st.lists(st.integers(0, 3000), min_size=1, max_size=70)))
    rng = np.random.default_rng(len(counts))
    knots = (0, 1, 3, 10, 30, 100, 1000)
    fitted = RarityBlend(
        counts=knots,
        intercepts=tuple(rng.normal(size=7).tolist()),
        weights={str(i): tuple(rng.random(7).tolist()) for i in range(3)},
        floors={str(i): -4.0 for i in range(3)},
        below={str(i): tuple(rng.random(7).tolist()) for i in range(3)},
        curve_bends=(-1.0, 1.0),
        curve_levels=tuple(rng.normal(size=7).tolist()),
        curve_slopes=tuple(tuple(row) for row in rng.random((3, 7)).tolist()),
    )
    scores = rng.normal(size=(3, 1, len(counts))).astype(np.float32)
    labels = np.arange(len(counts))[None]
    whole = fitted_blend(fitted, counts).log_odds(scores, labels)
    first = data.draw(st.integers(0, len(counts) - 1))
    stop = data.draw(st.integers(first + 1, len(counts)))
    part = fitted_blend(fitted, counts[first:stop])
    found = part.log_odds(scores[..., first:stop], labels[:, : stop - first])
    assert found.tobytes() == whole[:, first:stop].tobytes()


@given(
    counts=st.lists(st.integers(0, 10**6), max_size=30),
    knots=st.sampled_from([*KNOTS, (0, 5, 10**5)]),
)
def test_labels_lie_between_two_knots_or_beyond_the_last(counts, knots):
    shares = knot_shares(np.array(counts, dtype=np.int64), knots)
    assert shares.shape == (len(counts), len(knots))
    for count, own in zip(counts, shares, strict=True):
        assert own.sum() == pytest.approx(1)
        assert own.min() >= 0
        reached = own @ np.log1p(knots)
        assert reached == pytest.approx(np.log1p(min(count, knots[-1])))
        there = np.flatnonzero(own)
        assert len(there) <= 2 and np.ptp(there) <= 1
