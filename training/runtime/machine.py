"""Where training computes, how precisely, and with which other processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from models.errors import ConfigError
from training.runtime.distributed import ALONE, Ranks


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and how precisely to compute.

    Attributes:
        device: "cpu" or "cuda".
        is_bfloat16: Whether matrix products run in bfloat16.
        is_float16: Whether they run in float16, whose range is so narrow that the loss is scaled.
        ranks: The processes that train together.
    """

    device: str
    is_bfloat16: bool
    is_float16: bool = False
    ranks: Ranks = ALONE

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """Compute inside in the half precision of this machine, if it has one."""
        is_half = self.is_bfloat16 or self.is_float16
        dtype = torch.float16 if self.is_float16 else torch.bfloat16
        with torch.autocast(self.device, dtype=dtype, enabled=is_half):
            yield

    @contextmanager
    def forked_random(self, seed: int) -> Iterator[None]:
        """Let PyTorch draw by this seed inside, and go on afterwards as if nothing was drawn."""
        devices = [torch.cuda.current_device()] if self.device == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            yield

    def new_scaler(self) -> torch.amp.GradScaler:
        """Return what scales the loss in float16, and does nothing in other precisions."""
        return torch.amp.GradScaler(self.device, enabled=self.is_float16)


def find_machine(precision: str, ranks: Ranks = ALONE) -> Machine:
    """Return the GPU if PyTorch has one, and bfloat16 where the hardware has it, unless told.

    Args:
        precision: "auto", "float32", "bfloat16" or "float16".
        ranks: The processes that train together.

    Raises:
        ConfigError: It is float16, and there is no GPU.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if precision == "float16" and device == "cpu":
        raise ConfigError(
            "precision is 'float16', but there is no GPU, and processors are slow in it; take "
            "'auto', 'bfloat16' or 'float32'"
        )
    if precision != "auto":
        return Machine(device, precision == "bfloat16", precision == "float16", ranks)
    if device == "cuda":
        return Machine(device, is_bfloat16=torch.cuda.is_bf16_supported(), ranks=ranks)
    flags = torch.cpu.get_capabilities()
    has_it = bool(flags.get("avx512_bf16") or flags.get("amx_bf16"))
    return Machine(device, is_bfloat16=has_it, ranks=ranks)
