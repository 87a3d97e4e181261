"""How a step encodes its texts: all at once, part by part, or shared out among processes.

Parts don't change what is learned but for the dropout's draws and the last bits: of each, what
the encoder computed is forgotten, and computed again when its gradient is (Gao et al. 2021,
GradCache). So a loss over the whole batch has its whole gradient, even one that does not decompose
over documents, labels are encoded once a step, and memory is that of one part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from longtail.models.encoders.dual_encoder import Role
from longtail.models.encoders.tokens import TokenBatch
from longtail.training.neural.model import DeplModel
from longtail.training.runtime.machine import Machine

Encode = Callable[[TokenBatch, Role], Tensor]


@contextmanager
def encoding_in_parts(model: DeplModel, machine: Machine, num_parts: int) -> Iterator[None]:
    """Let the steps of a model encode in parts inside.

    Args:
        model: Its `encode` is what steps call.
        machine: Its processes share a batch.
        num_parts: Parts of each process's share.
    """
    encode: Encode = model.encoder.__call__  # a module would become a part of the model
    if num_parts > 1 or machine.processes.count > 1:
        encode = _Parts(encode, model.encoder.dim, machine, num_parts)
    model.encode_by = encode
    try:
        yield
    finally:
        model.encode_by = None


@dataclass(frozen=True, slots=True)
class _Parts:
    """Encodes the part of a batch that is this process's, and gathers those of all."""

    encode: Encode
    dim: int
    machine: Machine
    num_parts: int

    def __call__(self, batch: TokenBatch, role: Role) -> Float[Tensor, "batch dim"]:
        # From the generator that follows from the step: all processes draw the same.
        seed = int(torch.randint(2**62, ()))
        processes, device = self.machine.processes, self.machine.device
        num_parts = processes.count * self.num_parts
        ends = [len(batch) * number // num_parts for number in range(num_parts + 1)]
        vectors = [torch.empty(0, self.dim, device=device)]
        for number in range(processes.rank * self.num_parts, (processes.rank + 1) * self.num_parts):
            start, end = ends[number : number + 2]
            if end > start:
                vectors.append(self._encode_part(batch.part(start, end), role, seed + number))
        sizes = np.diff(ends[:: self.num_parts]).tolist()
        return processes.gathered(torch.cat(vectors), sizes)

    def _encode_part(self, part: TokenBatch, role: Role, seed: int) -> Float[Tensor, "part dim"]:
        def encode(part: TokenBatch) -> Tensor:
            with self.machine.forked_random(seed):
                return self.encode(part, role).float()

        if self.num_parts == 1:
            return encode(part)
        return cast(Tensor, checkpoint(encode, part, use_reentrant=False, preserve_rng_state=False))
