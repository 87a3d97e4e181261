"""Adagrad on rows against PyTorch's on the whole matrix."""

import torch

from longtail.training.linear.trainer import AdagradRows

RATE = 0.1


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_steps_are_those_of_adagrad_on_the_whole_matrix():
    rows = AdagradRows.zeros((6, 3), "cpu")
    whole = torch.zeros(6, 3, requires_grad=True)
    optimizer = torch.optim.Adagrad([whole], lr=RATE, initial_accumulator_value=1e-8, eps=0)
    for number, changed in enumerate(([0, 2], [2, 5], [2], [5, 1])):
        gradient = random(len(changed), 3, seed=number)
        rows.step(torch.tensor(changed), gradient, RATE)
        whole.grad = torch.zeros(6, 3).index_copy(0, torch.tensor(changed), gradient)
        optimizer.step()
    assert torch.allclose(rows.values, whole.detach(), atol=1e-7)
    assert not rows.values[[3, 4]].any()


def test_other_rows_are_not_touched():
    rows = AdagradRows(*(random(5, 4, seed=s).abs() for s in (0, 1)))
    before = [x.clone() for x in (rows.values, rows.squares)]
    rows.step(torch.tensor([1]), random(1, 4), RATE)
    for old, new in zip(before, (rows.values, rows.squares), strict=True):
        assert torch.equal(old[[0, 2, 3, 4]], new[[0, 2, 3, 4]])
        assert (old[1] != new[1]).any()
