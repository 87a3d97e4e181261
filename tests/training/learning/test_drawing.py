"""Draws by operations that PyTorch allows on a GPU in its deterministic mode."""

import pytest
import torch
from scipy.stats import chisquare
from torch.utils._python_dispatch import TorchDispatchMode

from longtail.training.learning import document_distributions
from longtail.training.learning.document_distributions import cumulative_sums, draw_with_replacement


class AsOnGpu(TorchDispatchMode):
    """Raises where a GPU would, as the documentation of `use_deterministic_algorithms` lists."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name == "multinomial" or (name == "cumsum" and args[0].is_floating_point()):
            raise RuntimeError(f"{name}_cuda does not have a deterministic implementation")
        return func(*args, **(kwargs or {}))


@pytest.fixture
def on_gpu(monkeypatch):
    monkeypatch.setattr(document_distributions, "_is_on_cpu", lambda values: False)
    with AsOnGpu():
        yield


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_the_stand_in_raises_where_a_gpu_does():
    weights = torch.ones(2, 3)
    with AsOnGpu():
        with pytest.raises(RuntimeError, match="multinomial_cuda"):
            draw_with_replacement(weights, 4, generator())
        with pytest.raises(RuntimeError, match="cumsum_cuda"):
            cumulative_sums(weights.double())


def test_draws_on_a_gpu_follow_the_weights(on_gpu):
    weights = torch.tensor([[0.0, 1.0, 0.0, 3.0, 4.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0, 7.0]])
    drawn = draw_with_replacement(weights, 20_000, generator())
    for row, of_row in zip(drawn, weights, strict=True):
        counts = torch.bincount(row, minlength=6)
        assert not counts[of_row == 0].any()
        is_drawn = of_row > 0
        expected = of_row[is_drawn] / of_row.sum() * len(row)
        assert chisquare(counts[is_drawn].numpy(), expected.double().numpy()).pvalue > 1e-4


@pytest.mark.gpu
def test_a_gpu_draws_in_deterministic_mode():
    weights = torch.tensor([[0.0, 1.0, 0.0, 3.0]]).cuda()
    torch.use_deterministic_algorithms(True)
    try:
        drawn = draw_with_replacement(weights, 1000, torch.Generator("cuda").manual_seed(0))
    finally:
        torch.use_deterministic_algorithms(False)
    assert set(drawn.flatten().tolist()) == {1, 3}
