"""Where a model computes, by how many threads and in what precision."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from joblib import cpu_count

from longtail.models.errors import ConfigError, check_count
from longtail.models.names import IndexName, Precision
from longtail.models.processor import sees_gpu

if TYPE_CHECKING:  # brings PyTorch
    from longtail.models.memory.device_vectors import DeviceVectors
    from longtail.models.memory.vectors import ByteVectors
    from longtail.models.parts.dense_parts import DenseParts

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a model computes.

    Attributes:
        device: Device of the encoder: "cpu" or "cuda". The sparse model is always on the CPU.
        index_device: Device of label vectors and label tree (see `InnerProductIndex`).
        num_threads: That rank many texts by the sparse model.
        index: What searches label vectors.
    """

    device: str
    index_device: str
    num_threads: int
    index: IndexName = "torch"

    @classmethod
    def of(cls, device: str | None, num_threads: int | None, index: str = "torch") -> Placement:
        """Return where to compute.

        Args:
            device: "cpu" or "cuda"; None: a GPU if there is one.
            num_threads: None: one a core.
            index: "faiss", "torch", or "auto" for the faster one.
        """
        if num_threads is not None:
            check_count("num_threads", num_threads, ConfigError)
        if device not in (None, "cpu", "cuda"):
            raise ConfigError(f"device is {device!r}; expected 'cpu' or 'cuda'")
        if device == "cuda" and not sees_gpu():
            raise ConfigError(
                f"device {device!r}: PyTorch sees no GPU; use the device 'cpu', or a PyTorch with "
                "CUDA on a machine with an NVIDIA GPU"
            )
        known: dict[str, IndexName] = {name: name for name in get_args(IndexName)}
        if index not in known:
            raise ConfigError(f"index is {index!r}; expected one of {', '.join(known)}")
        chosen = device or ("cuda" if sees_gpu() else "cpu")
        return cls(chosen, device or "auto", num_threads or cpu_count(), known[index])

    def place(self, dense: DenseParts, precision: Precision) -> None:
        """Move an encoder to the device and turn it into a precision."""
        import torch

        from longtail.models.encoders.pretrained import dtype_for

        dtype = dtype_for(precision, self.device)
        if precision == "bfloat16" and self.device == "cpu" and dtype_for("auto", "cpu") != dtype:
            logger.warning(
                "precision is 'bfloat16', which this processor only imitates, several times as "
                "slow as float32: take 'auto'"
            )
        try:
            dense.encoder.to(self.device, dtype)
        except torch.OutOfMemoryError as error:
            raise ConfigError(
                f"device {self.device!r}: the GPU's memory is too small for the encoder "
                f"({str(error).splitlines()[0][:200]}); unload a version, use a larger GPU, or the "
                "device 'cpu'"
            ) from error


def on_device(vectors: ByteVectors, index_device: str) -> DeviceVectors | None:
    """Return vectors in the memory of a GPU; None where they are searched on the CPU.

    Args:
        vectors: The vectors.
        index_device: Where they are searched (see `InnerProductIndex`).
    """
    device = ("cuda" if sees_gpu() else "cpu") if index_device == "auto" else index_device
    if device == "cpu":
        return None
    from longtail.models.memory.device_vectors import DeviceVectors
    from longtail.models.ranking.index import chosen_device

    return DeviceVectors(vectors, chosen_device(device))
