"""The processor, as the system tells it."""

import pytest
import torch

from longtail.models import processor


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (RuntimeError("CUDA error: device-side assert\nmore"), "CUDA error: device-side assert"),
        (torch.AcceleratorError("CUDA error: device lost"), "CUDA error: device lost"),
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
