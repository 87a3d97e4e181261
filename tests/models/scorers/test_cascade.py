"""The rule of a cascade: expected changes of places, counted pair by pair."""

from __future__ import annotations

import json
from statistics import NormalDist

import numpy as np
import pytest

from longtail.models.scorers.cascade import NUM_CONTENDERS, CascadeRule, doubt

RULE = CascadeRule(
    places=2, noise=0.5, most_doubt=0.75, max_loss=0.003, loss=0.001, loss_limit=0.0029,
    first_share=0.4,
)  # fmt: skip


def doubt_of(row: list[float], places: int, noise: float) -> float:
    """The oracle: every label of the best k against every one behind them."""
    finite = [max(-30.0, value) for value in row]
    normal = NormalDist(0, noise * 2**0.5)
    return sum(normal.cdf(low - high) for high in finite[:places] for low in finite[places:])


@pytest.mark.parametrize("places", [1, 2, 4])
def test_doubt_is_the_expected_number_of_labels_that_pass_others(places):
    rng = np.random.default_rng(places)
    rows = -np.sort(-rng.normal(scale=2, size=(5, 6)), axis=1)
    found = doubt(rows, places, 0.7)
    np.testing.assert_allclose(found, [doubt_of(row.tolist(), places, 0.7) for row in rows])


def test_a_wide_gap_behind_the_best_leaves_no_doubt():
    clear, close = [9.0, 8.0, -5.0, -6.0], [9.0, 1.0, 0.9, -6.0]
    assert doubt(np.array([clear, close]), 2, 0.5).tolist() == pytest.approx([0, 0.44375], abs=1e-4)


def test_labels_without_a_score_are_as_good_as_each_other():
    nothing = np.full((1, 4), -np.inf)
    assert doubt(nothing, 2, 0.5) == pytest.approx(2 * 2 * 0.5)
    few = np.array([[3.0, -np.inf, -np.inf]])
    assert doubt(few, 1, 0.5) == pytest.approx(0, abs=1e-9)
    assert doubt(few, 2, 0.5) == pytest.approx(0.5, abs=1e-9)


def test_the_first_stage_answers_up_to_the_doubt():
    rows = np.array([[9.0, 8.0, -5.0], [9.0, 1.0, 0.9], [9.0, 1.0, 0.99]])
    expected = [doubt_of(row.tolist(), 2, 0.5) <= 0.75 for row in rows]
    assert RULE.is_answered(rows).tolist() == expected
    assert RULE.num_labels == 2 + NUM_CONTENDERS


def test_a_rule_comes_back_as_it_was_written():
    assert CascadeRule.from_json(RULE.to_json()) == RULE


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"places": 0}, ValueError),
        ({"places": 2.0}, TypeError),
        ({"noise": 0.0}, ValueError),
        ({"noise": True}, TypeError),
        ({"most_doubt": float("nan")}, ValueError),
        ({"first_share": 1.5}, ValueError),
        ({"other": 1.0}, TypeError),
    ],
)
def test_what_is_no_rule_is_refused(change, error):
    content = json.loads(RULE.to_json()) | change
    with pytest.raises(error):
        CascadeRule.from_json(json.dumps(content))


@pytest.mark.parametrize("text", ["[]", "3", "{}"])
def test_another_form_is_refused(text):
    with pytest.raises(TypeError):
        CascadeRule.from_json(text)
