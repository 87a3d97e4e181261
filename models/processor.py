"""The processor that this process runs on: its name, its cores, and how it multiplies matrices."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from longtail.models.extras import is_installed
from longtail.models.platform import usable_cores

FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16")
"""Instructions of a processor that decide how fast, and in which precision, it computes."""

_CPU_INFO = Path("/proc/cpuinfo")
_GPU_FILES = tuple(map(Path, ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")))
"""One of them is there where CUDA is: of NVIDIA's driver, of Windows' for Linux, of AMD's."""


@dataclass(frozen=True, slots=True)
class Processor:
    """What computes.

    Attributes:
        model: Its name; None where the system does not tell.
        flags: Those of `FLAGS` that it has; none where the system does not tell.
        cores: That this process may use.
    """

    model: str | None
    flags: tuple[str, ...]
    cores: int


def find_processor() -> Processor:
    """Return the processor that this process runs on."""
    fields: dict[str, str] = {}
    if _CPU_INFO.is_file():
        lines = _CPU_INFO.read_text(encoding="utf-8").split("\n\n", 1)[0].splitlines()
        fields = {
            name.strip(): value.strip() for name, _, value in (x.partition(":") for x in lines)
        }
    flags = fields.get("flags", "").split()
    found = tuple(x for x in FLAGS if x in flags)
    return Processor(fields.get("model name"), found, usable_cores())


def sees_gpu() -> bool:
    """Return whether PyTorch sees a GPU; it is imported only where there can be one."""
    may_be = sys.platform != "linux" or any(path.exists() for path in _GPU_FILES)
    if "torch" not in sys.modules and not (may_be and is_installed("cpu")):
        return False
    import torch

    return torch.cuda.is_available()


def gpu_problem() -> str | None:
    """Return why this process can't use PyTorch's GPU any more; None where it can.

    After a kernel has failed, such as by an illegal address, CUDA refuses everything that the
    process asks for until it ends. Lack of memory is no such failure.
    """
    import torch

    try:
        torch.ones(1, device="cuda").sum().item()
    except torch.OutOfMemoryError:
        return None
    except RuntimeError as error:
        return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    return None
