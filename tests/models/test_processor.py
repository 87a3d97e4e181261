"""The processor, as the system tells it."""

from __future__ import annotations

import sys

import pytest
import torch

from longtail.models import processor


def test_pytorch_is_asked_for_a_gpu_where_it_is_loaded_or_there_may_be_one(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert processor.sees_gpu()
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(processor, "_GPU_FILES", (tmp_path / "nvidiactl",))
    assert not processor.sees_gpu()
    assert "torch" not in sys.modules
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert processor.sees_gpu()


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (RuntimeError("CUDA error: device-side assert\nmore"), "CUDA error: device-side assert"),
        (RuntimeError(""), "RuntimeError"),
        (torch.OutOfMemoryError("CUDA out of memory"), None),
        (None, None),
    ],
)
def test_a_gpu_that_refuses_a_sum_is_lost_but_a_full_one_is_not(monkeypatch, error, problem):
    def ones(*_, **__):
        if error is not None:
            raise error
        return torch.tensor([1.0])

    monkeypatch.setattr(torch, "ones", ones)
    assert processor.gpu_problem() == problem
