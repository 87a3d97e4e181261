"""The processor that this process runs on: its name, its cores, and how it multiplies matrices."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16")
"""Instructions of a processor that decide how fast, and in which precision, it computes."""

_CPU_INFO = Path("/proc/cpuinfo")


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
    has_affinity = hasattr(os, "sched_getaffinity")  # absent on macOS
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return Processor(fields.get("model name"), tuple(x for x in FLAGS if x in flags), cores)
