"""The grid of rates and penalties, and the search in it."""

from __future__ import annotations

import pytest

from research.experiments.adversarial.tuning import Candidate, tune


def test_a_penalty_is_a_regulariser_or_a_prior():
    found = Candidate("nce", 0, 4)
    assert (found.regulariser, found.prior_variance, found.penalty) == (1e-3, None, "λ=0.001")
    found = Candidate("softmax", 0, 3)
    assert (found.regulariser, found.prior_variance, found.penalty) == (0.0, 10.0, "σ₀²=10")
    assert Candidate("softmax", 0, 0).penalty == "none"


@pytest.mark.parametrize("best", [(-3, 4), (2, 0), (-9, 7), (-4, 6)])
def test_the_search_goes_on_until_it_gets_no_better(best):
    def objective_value(candidate: Candidate) -> float:
        return -abs(candidate.half_decade - best[0]) - abs(candidate.penalty_index - best[1])

    assert tune("uniform", objective_value, 1) == Candidate("uniform", *best)


def test_axes_that_hang_together_take_more_turns():
    def objective_value(candidate: Candidate) -> float:
        return -abs(candidate.half_decade + candidate.penalty_index) - 0.1 * abs(
            candidate.penalty_index - 6
        )

    found = [
        objective_value(tune("uniform", objective_value, num_rounds)) for num_rounds in range(3)
    ]
    assert found[0] <= found[1] <= found[2]
    assert tune("uniform", objective_value, 0) == Candidate.start("uniform")
