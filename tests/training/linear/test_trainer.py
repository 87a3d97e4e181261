"""Adagrad on rows against PyTorch's on the whole matrix; rounding to bfloat16."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longtail.training.linear.trainer import AdagradRows, round_to_bfloat16

RATE = 0.1


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_steps_are_those_of_adagrad_on_the_whole_matrix():
    rows = AdagradRows.zeros((6, 3), torch.float32, "cpu")
    whole = torch.zeros(6, 3, requires_grad=True)
    optimizer = torch.optim.Adagrad([whole], lr=RATE, initial_accumulator_value=1e-8, eps=0)
    for number, changed in enumerate(([0, 2], [2, 5], [2], [5, 1])):
        gradient = random(len(changed), 3, seed=number)
        rows.step(torch.tensor(changed), gradient, RATE, generator())
        whole.grad = torch.zeros(6, 3).index_copy(0, torch.tensor(changed), gradient)
        optimizer.step()
    assert torch.allclose(rows.values, whole.detach(), atol=1e-7)
    assert not rows.values[[3, 4]].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_rows_are_not_touched(dtype):
    rows = AdagradRows(*(random(5, 4, seed=s).abs().to(dtype) for s in (0, 1)))
    before = [x.clone() for x in (rows.values, rows.squares)]
    rows.step(torch.tensor([1]), random(1, 4), RATE, generator())
    for old, new in zip(before, (rows.values, rows.squares), strict=True):
        assert torch.equal(old[[0, 2, 3, 4]], new[[0, 2, 3, 4]])
        assert (old[1] != new[1]).any()


@given(
    st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False),
    st.integers(0, 9),
)
def test_rounding_gives_one_of_the_two_neighbours(value, seed):
    exact = torch.tensor([[value]])
    found = round_to_bfloat16(exact, torch.Generator().manual_seed(seed))
    nearest = exact.to(torch.bfloat16)
    neighbours = {float(nearest), *(float(_next(nearest, x)) for x in (-math.inf, math.inf))}
    assert float(found) in neighbours
    assert float(found) == value or float(nearest) != value


def _next(value: torch.Tensor, towards: float) -> torch.Tensor:
    return torch.nextafter(value, torch.tensor(towards, dtype=torch.bfloat16))


def test_small_changes_add_up_in_half_precision():
    rows = AdagradRows(torch.ones(1, 256).bfloat16(), torch.full((1, 256), 1e4).bfloat16())
    draws = generator()
    for _ in range(1000):  # each changes 1 by 1e-4: rounded to nearest, nothing would ever move
        rows.step(torch.tensor([0]), torch.ones(1, 256), 0.01, draws)
    assert abs(float(rows.values.double().mean()) - 0.9) < 0.01
    assert abs(float(rows.squares.double().mean()) - 11_000) < 200
