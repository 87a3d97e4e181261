"""Where training computes, how precisely, and with which other processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from longtail.models.encoders.pretrained import dtype_for
from longtail.models.names import Precision
from longtail.training.runtime.distributed import ALONE, Processes


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and how precisely to compute.

    Attributes:
        device: "cpu" or "cuda".
        is_bfloat16: Whether matrix products run in bfloat16.
        processes: The processes that train together.
    """

    device: str
    is_bfloat16: bool
    processes: Processes = ALONE

    @property
    def precision(self) -> Precision:
        """What matrix products run in, by its name."""
        return "bfloat16" if self.is_bfloat16 else "float32"

    @property
    def dtype(self) -> torch.dtype:
        """What matrix products run in."""
        return torch.bfloat16 if self.is_bfloat16 else torch.float32

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """Compute inside in bfloat16, if this machine does."""
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.is_bfloat16):
            yield

    @staticmethod
    @contextmanager
    def reproducible() -> Iterator[None]:
        """Let PyTorch use only operations that give the same bits every time."""
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, cuBLAS refuses
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)

    @contextmanager
    def forked_random(self, seed: int) -> Iterator[None]:
        """Let PyTorch draw by this seed inside, and go on afterwards as if nothing was drawn."""
        with forked_random(seed, self.device):
            yield


@contextmanager
def forked_random(seed: int, device: str = "cpu") -> Iterator[None]:
    """Let PyTorch draw by this seed inside, and go on afterwards as if nothing was drawn.

    Of all GPUs only the current one is touched: PyTorch would else save the state of each, which
    takes some 0.5 GB there for every process.

    Args:
        seed: Of what is drawn inside.
        device: "cpu" or "cuda", where it is drawn.
    """
    devices = [torch.cuda.current_device()] if device == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield


def find_machine(precision: Precision, processes: Processes = ALONE) -> Machine:
    """Return the GPU if PyTorch has one, and bfloat16 where the hardware has it, unless told.

    Args:
        precision: "auto", "float32" or "bfloat16".
        processes: The processes that train together.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return Machine(device, dtype_for(precision, device) == torch.bfloat16, processes)
