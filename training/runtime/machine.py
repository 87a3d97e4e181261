"""Where training computes, how precisely, and with which other processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from models.encoders.pretrained import Precision, dtype_for
from training.runtime.distributed import ALONE, Processes


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

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """Compute inside in bfloat16, if this machine does."""
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.is_bfloat16):
            yield

    @contextmanager
    def forked_random(self, seed: int) -> Iterator[None]:
        """Let PyTorch draw by this seed inside, and go on afterwards as if nothing was drawn."""
        devices = [torch.cuda.current_device()] if self.device == "cuda" else []
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
