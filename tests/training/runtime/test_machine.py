"""Where and how precisely training computes."""

from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from longtail.training.runtime.machine import Machine, find_machine, forked_random


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that has bfloat16."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("auto", Machine("cuda", is_bfloat16=True)),
        ("float32", Machine("cuda", is_bfloat16=False)),
        ("bfloat16", Machine("cuda", is_bfloat16=True)),
    ],
)
def test_on_a_gpu_every_precision_is_to_be_had(gpu, precision, expected):
    assert find_machine(precision) == expected


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
    assert [path.name for path, text in texts.items() if "fork_rng(" in text] == ["machine.py"]


@pytest.mark.parametrize(
    ("machine", "dtype"),
    [
        (Machine("cpu", is_bfloat16=False), torch.float32),
        (Machine("cpu", is_bfloat16=True), torch.bfloat16),
    ],
)
def test_matrix_products_run_in_the_precision_of_the_machine(machine, dtype):
    with machine.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype


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
