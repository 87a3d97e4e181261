"""Where and how precisely training computes."""

from __future__ import annotations

import pytest
import torch

from training.runtime.distributed import Processes
from training.runtime.machine import Machine, find_machine


@pytest.fixture
def gpu(monkeypatch) -> None:
    """A GPU that has bfloat16."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)


@pytest.fixture
def no_gpu(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


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


def test_pytorch_that_can_not_tell_of_bfloat16_computes_in_float32(no_gpu, monkeypatch):
    """`torch.cpu.get_capabilities` is there since 2.11."""
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert find_machine("auto") == Machine("cpu", is_bfloat16=False)


def test_a_machine_knows_its_processes(no_gpu):
    for precision in ("auto", "float32"):
        assert find_machine(precision, Processes(1, 2)).processes == Processes(1, 2)


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
