"""Where training computes, how precisely, and in which processes, as torchrun starts them.

The documents and labels that a step encodes are divided among the processes, and their vectors
gathered, so that each process computes the same loss over the whole batch. It need not decompose
over documents then, and all processes draw alike.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from jaxtyping import Float32
from torch import Tensor, nn
from torch import distributed as dist

from longtail.models.encoders.pretrained import dtype_for
from longtail.models.errors import ConfigError
from longtail.models.names import Precision

T = TypeVar("T")
_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_LONGEST_WAIT = timedelta(days=7)
"""For what the first process does alone; one that ends ends the others, torchrun sees to it."""


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes that train one model, and which of them this one is.

    Attributes:
        rank: From 0; that one writes everything.
        count: Processes.
    """

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that reads, writes and decides."""
        return self.rank == 0

    def from_first(self, make: Callable[[], T]) -> T:
        """Return what the first process makes; the others only receive it."""
        if self.count == 1:
            return make()
        found: list[Any] = [make() if self.is_first else None]
        dist.broadcast_object_list(found, src=0, device=torch.device("cpu"))
        return cast(T, found[0])

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Fill tensors, in place, with those of the first process."""
        if self.count > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), src=0)

    def leave(self) -> None:
        """End what ties the processes together; they come to it at about the same time."""
        if self.count > 1:
            dist.destroy_process_group()

    def tensors_from_first(self, make: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return the tensors that the first process makes, by name."""
        if self.count == 1:
            return dict(make())
        own = make() if self.is_first else {}
        forms = self.from_first(lambda: {k: (v.shape, v.dtype) for k, v in own.items()})
        found = {
            name: own[name].cpu().contiguous() if self.is_first else torch.empty(shape, dtype=dtype)
            for name, (shape, dtype) in forms.items()
        }
        self.copy_from_first(found.values())
        return found

    def gathered(
        self, own: Float32[Tensor, "own dim"], sizes: Sequence[int]
    ) -> Float32[Tensor, "text dim"]:
        """Return the vectors of all processes, in the order of the processes.

        Backwards, each takes the gradient of its own vectors and no other: all have the same loss.
        """
        if self.count == 1:
            return own
        return cast(Tensor, _Gathered.apply(own, self.rank, sizes))  # type: ignore[no-untyped-call]

    def sum_gradients(self, shared: Iterable[nn.Parameter], alike: Iterable[nn.Parameter]) -> None:
        """Make the gradients of all processes those of the whole batch.

        Args:
            shared: Parameters of which each process has the gradient of its own part.
            alike: Parameters of which each has the gradient of the whole; their mean is taken, so
                that they stay the same to the bit.
        """
        if self.count == 1:
            return
        scaled = [(each, 1.0) for each in shared] + [(each, 1 / self.count) for each in alike]
        gradients = [
            each.new_zeros(each.numel()) if each.grad is None else scale * each.grad.flatten()
            for each, scale in scaled
        ]
        # A parameter without a gradient anywhere stays so: an optimizer leaves it alone then.
        has_one = [float(each.grad is not None) for each, _ in scaled]
        total = torch.cat([*gradients, gradients[0].new_tensor(has_one)])
        dist.all_reduce(total)
        *sums, counts = torch.split(total, [*map(len, gradients), len(has_one)])
        for (each, _), value, count in zip(scaled, sums, counts.tolist(), strict=True):
            each.grad = value.view_as(each) if count else None


ALONE = Processes()


class _Gathered(torch.autograd.Function):
    """All processes' rows, of which the own ones have a gradient."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, rank: int, sizes: Sequence[int]) -> Tensor:
        ctx.own = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        padded = own.new_zeros(max(sizes), own.shape[1])
        padded[: len(own)] = own
        rows = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(rows, padded)
        return torch.cat([each[:size] for each, size in zip(rows, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0][ctx.own], None, None


@contextmanager
def joined_processes() -> Iterator[Processes]:
    """Join the processes that torchrun started with this one; without torchrun there is no other.

    Yields:
        The place of this process.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 or not all(name in os.environ for name in _VARIABLES):
        yield ALONE
        return
    backend = "gloo"
    if torch.cuda.is_available():
        backend = "cpu:gloo,cuda:nccl"
        local, num_gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if local >= num_gpus:
            raise ConfigError(
                f"torchrun started process {local + 1} of this machine, which has {num_gpus} GPUs; "
                "expected one GPU a process, lower --nproc-per-node"
            )
        torch.cuda.set_device(local)
    dist.init_process_group(backend, timeout=_LONGEST_WAIT)
    try:
        yield Processes(dist.get_rank(), count)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


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
        seed: Seed of what is drawn inside.
        device: "cpu" or "cuda", where it is drawn.
    """
    devices = [torch.cuda.current_device()] if device == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield


def find_machine(precision: Precision, processes: Processes = ALONE) -> Machine:
    """Return the GPU if PyTorch has one; by default bfloat16 where the hardware has it.

    Args:
        precision: "auto", "float32" or "bfloat16".
        processes: The processes that train together.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return Machine(device, dtype_for(precision, device) == torch.bfloat16, processes)
