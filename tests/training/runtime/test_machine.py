"""Where and how precisely training computes."""

from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from longtail.training.runtime.distributed import Machine, forked_random


@pytest.mark.parametrize(("device", "devices"), [("cpu", []), ("cuda", [2])])
def test_draws_touch_no_gpu_but_the_current_one(monkeypatch, device, devices):
    """The state of all of them takes memory of each, for every process."""
    asked = []

    @contextmanager
    def noting(devices=None):
        asked.append(devices)
        yield

    monkeypatch.setattr(torch.random, "fork_rng", noting)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    with forked_random(5, device):
        first = torch.rand(3)
    with Machine(device, is_bfloat16=False).forked_random(5):
        assert torch.equal(torch.rand(3), first)
    assert asked == [devices, devices]


def test_all_training_forks_draws_with_devices():
    """`fork_rng()` alone takes all GPUs."""
    folder = Path(__file__).parents[3] / "training"
    texts = {path: path.read_text() for path in folder.rglob("*.py")}
    assert [path.name for path, text in texts.items() if "fork_rng(" in text] == ["distributed.py"]


def test_draws_follow_from_the_seed_and_leave_no_trace():
    machine = Machine("cpu", is_bfloat16=False)
    torch.manual_seed(1)
    with machine.forked_random(5):
        first = torch.rand(3)
    after = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), after)
    with machine.forked_random(5):
        assert torch.equal(torch.rand(3), first)
