"""Compiled functions give what Python gives, also where nothing can be kept on disk."""

from __future__ import annotations

import numpy as np
import pytest
from numba.core.caching import FunctionCache

from longtail.models.jit import compiled, vectorised


def total(values):
    found = 0.0
    for value in values:
        found += value
    return found


def test_a_compiled_function_gives_what_the_plain_one_gives():
    values = np.random.default_rng(0).random(100)
    assert compiled(total)(values) == total(values)


def test_nothing_is_kept_where_no_folder_can_be_written_to(monkeypatch):
    def refuse(*arguments):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(FunctionCache, "__init__", refuse)
    assert compiled(total)(np.ones(3)) == 3


def share(values, number):
    return values[0] / number


def test_a_vectorised_function_gives_what_the_plain_one_gives_but_for_rounding():
    values = np.random.default_rng(0).random(1000)
    assert vectorised(total)(values) == pytest.approx(total(values), rel=1e-12)


def test_a_division_by_zero_is_infinite_where_loops_are_vectorised():
    assert vectorised(share)(np.ones(1), 0.0) == np.inf
