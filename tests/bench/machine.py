"""What a benchmark runs on: the processor's flags, which way is taken on it, and who else computes.

Every benchmark begins with `begin`, which prints that: a figure without it means little on another
machine, and one that was measured beside other work means little anywhere.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from longtail.models.processor import Processor, find_processor

sys.path.append(str(Path(__file__).parents[2]))  # where `research` is, which is not installed

WAYS = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS")
"""Variables that make the libraries take the way of a lesser processor."""
THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS",
)  # fmt: skip
"""Variables that say how many threads a library has."""
BUSY_CORES = 0.15
"""Cores that other processes may keep busy; above, a warning is printed."""
_LOOK_S = 1.0
_STAT = Path("/proc/stat")


@dataclass(frozen=True, slots=True)
class Machine:
    """What a benchmark runs on.

    Attributes:
        processor: With those of its flags that matter.
        way: The widest instructions that the libraries may use on it.
        limits: Those of `WAYS` and `THREADS` that are set.
        busy_cores: That others kept busy; None where the system does not tell.
    """

    processor: Processor
    way: str
    limits: Mapping[str, str]
    busy_cores: float | None

    def __str__(self) -> str:
        """Return it in two lines."""
        limits = " ".join(f"{name}={value}" for name, value in self.limits.items())
        flags = " ".join(self.processor.flags) or "none of those that matter"
        return (
            f"processor: {self.processor.model}, {self.processor.cores} cores, {flags}\n"
            f"way taken: {self.way}; set: {limits or 'nothing'}; {self.others}"
        )

    @property
    def others(self) -> str:
        """Whether anybody else computes, in words."""
        if self.busy_cores is None:
            return "whether it is idle can't be told here"
        if self.busy_cores <= BUSY_CORES:
            return "idle"
        return f"BUSY: others keep {self.busy_cores:.1f} cores busy, so times say little"


def begin(
    parser: argparse.ArgumentParser, look: Callable[[], Machine] | None = None
) -> argparse.Namespace:
    """Return the options of a benchmark, and say on stderr what it runs on.

    Args:
        parser: Parser of the benchmark's options.
        look: Finds the machine.
    """
    chosen = parser.parse_args()
    print((look or find_machine)(), file=sys.stderr, flush=True)
    return chosen


def find_machine(
    environ: Mapping[str, str] = os.environ,
    stat: Path = _STAT,
    sleep: Callable[[float], object] = time.sleep,
) -> Machine:
    """Look for a second, in which this process does nothing, and return what there is.

    Args:
        environ: The environment.
        stat: Where Linux says what the processors do.
        sleep: Waits.
    """
    processor = find_processor()
    limits = {name: environ[name] for name in (*WAYS, *THREADS) if name in environ}
    return Machine(processor, way_of(processor, limits), limits, busy_cores(stat, sleep))


def busy_cores(stat: Path = _STAT, sleep: Callable[[float], object] = time.sleep) -> float | None:
    """Return how many cores others keep busy while this process sleeps for a second."""
    try:
        before = _times(stat)
        sleep(_LOOK_S)
        after = _times(stat)
    except (OSError, ValueError, IndexError):
        return None
    passed = sum(after) - sum(before)
    idle = sum(after[3:5]) - sum(before[3:5])  # what waits for a disk computes nothing
    cores = os.cpu_count() or 1
    return None if passed <= 0 else cores * (1 - idle / passed)


def way_of(processor: Processor, limits: Mapping[str, str]) -> str:
    """Return which instructions the libraries multiply matrices with."""
    if any("AVX2" in limits.get(name, "").upper() for name in WAYS):
        return "AVX2 (imitated)" if "avx512f" in processor.flags else "AVX2"
    kinds = {
        "amx_bf16": "AMX, bfloat16",
        "avx512_bf16": "AVX-512, bfloat16",
        "avx512f": "AVX-512, float32",
        "avx2": "AVX2, float32",
    }
    return next((way for flag, way in kinds.items() if flag in processor.flags), "unknown")


def same_threads(count: int) -> None:
    """Let all processes that are started from now on have the same rules for threads."""
    os.environ |= dict.fromkeys(THREADS, str(count))
    os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}


def _times(stat: Path) -> list[int]:
    """Return the clock ticks of all cores since the start: user, nice, system, idle, waiting..."""
    first = stat.read_text(encoding="utf-8").splitlines()[0].split()
    return [int(number) for number in first[1:9]]
