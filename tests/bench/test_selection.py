"""The shares that the simulation of `longtail select` reports."""

from __future__ import annotations

import pytest


@pytest.fixture
def selection(monkeypatch):
    from pathlib import Path

    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import selection

    return selection


def test_what_is_needed_lies_on_a_line_over_the_logarithm(selection):
    curve = [(100.0, 10.0), (400.0, 30.0), (900.0, 30.0)]
    assert selection.needed(curve, 1, 20.0) == pytest.approx(200)
    assert selection.needed(curve, 1, 30.0) == pytest.approx(400)
    assert selection.needed(curve, 1, 5.0) == 100
    assert selection.needed(curve, 1, 31.0) is None


def test_shares_are_means_over_the_seeds_and_missing_where_one_is_not_reached(selection):
    def rows(name, seed, values):
        sizes = (100, 400)
        return [(name, seed, n, 5.0, 9, *each) for n, each in zip(sizes, values, strict=True)]

    steps = [
        *rows("random", 0, [(10, 1), (20, 2)]),
        *rows("select", 0, [(10, 1), (30, 2)]),
        *rows("random", 1, [(10, 1), (20, 2)]),
        *rows("select", 1, [(10, 1), (20, 1)]),
    ]
    assert selection.shares_of(steps).rows == [["select", 400, pytest.approx(0.75), None, 2]]
