"""Changed bundles are refused or answer: no crash, no hang, no error of another kind, no memory.

    python tests/bench/bundle_fuzz.py REGISTRY/1 [MORE ...] --count 20000 --seed 1 --jobs 2

Each bundle is changed in one array or JSON value, with hashes that fit, and opened, loaded, asked
by every scorer with explanations and described in a forked child. A child may compute for 10 s, and
take twice the bundle and 256 MiB of memory beyond what it began with. Exit status 1 where one does
otherwise; the same seed makes the same changes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # a forked child has no threads of its parent
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"

import faiss
import numpy as np
import torch
from bundle_mutations import mutate

from longtail.models.bundle.bundle import open_bundle
from longtail.models.errors import LongtailError
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor

SECONDS = 10
WAIT_SECONDS = 300
"""A child that neither computes nor ends: on a busy machine it may wait for its turn for long."""
FREE_BYTES = 2**28
_REPORTED = 500
ADDRESS_BYTES = 2**31
"""Beyond what a child begins with: threads reserve addresses that they never use."""
TEXTS = (
    "Duties on imports of olive oil from third countries, fishing quotas and customs",
    "heat pump",
    "x" * 50,
    "regulation of the market in milk products " * 20,
)
FINE = ("answered", "refused", "refused to answer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundles", type=Path, nargs="+")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", type=int, help="the number of one change, to see its error")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        for folder in options.bundles:
            assert _try(folder) == "answered", folder  # and all code is compiled for the children
        numbers = range(options.count) if options.only is None else [options.only]
        faults = _run(options.bundles, options.seed, numbers, options.jobs, Path(scratch))
    sys.exit(1 if faults else 0)


def _run(
    folders: Sequence[Path], seed: int, numbers: Sequence[int], jobs: int, scratch: Path
) -> int:
    """Try all changes, some at a time; print the faults and return how many there are."""
    counts, running = Counter[str](), {}
    for number in numbers:
        if len(running) == jobs:
            _reap(running, counts)
        base = folders[number % len(folders)]
        child = _Child(base, scratch / f"{number % (2 * jobs)}", seed, number)
        running[child.pid] = child
        if number and not number % _REPORTED:
            print(f"{number} changes: {dict(sorted(counts.items()))}", flush=True)
    while running:
        _reap(running, counts)
    print(f"seed {seed}: {sum(counts.values())} changes: {dict(sorted(counts.items()))}")
    return sum(count for result, count in counts.items() if result not in FINE)


def _reap(running: dict[int, _Child], counts: Counter[str]) -> None:
    """Wait for the child that ends first, and count how."""
    pid, status, usage = os.wait4(-1, 0)
    child = running.pop(pid)
    result, told = child.result(status, usage.ru_maxrss * 1024)
    counts[result] += 1
    if result not in FINE:
        print(
            f"seed {child.seed} --only {child.number}: {result}: {child.what}\n{told}", flush=True
        )


class _Child:
    """A process that tries one changed bundle."""

    def __init__(self, base: Path, folder: Path, seed: int, number: int) -> None:
        self.seed, self.number = seed, number
        self.what = mutate(base, folder, np.random.default_rng([seed, number]))
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        self._limit = _resident() + 2 * size + FREE_BYTES
        self._started = time.monotonic()
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _tell(folder, writer)
        os.close(writer)
        self._reader = reader

    def result(self, status: int, peak: int) -> tuple[str, str]:
        """Return how it ended, and what it said of that."""
        with os.fdopen(self._reader, encoding="utf-8") as file:
            told = json.loads(file.read() or '["ended", ""]')
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            is_slow = number in {signal.SIGPROF, signal.SIGALRM}
            return ("hang" if is_slow else f"signal {number}"), ""
        if peak > self._limit:
            return "memory", f"{(peak - self._limit) / 2**20:.0f} MiB beyond the limit"
        return told[0], told[1]


def _tell(folder: Path, writer: int) -> None:
    """Try a bundle, write down how it went, and end the process."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + ADDRESS_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(WAIT_SECONDS)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        told = [_try(folder), ""]
    except LongtailError as error:
        told = ["refused", str(error)]
    except BaseException as error:  # noqa: BLE001  # what the parent is to hear of
        told = [f"raised {type(error).__name__}", traceback.format_exc()[-1500:]]
    os.write(writer, json.dumps(told).encode()[:60_000])
    os._exit(0)


def _try(folder: Path) -> str:
    """Load a bundle, and ask it all that can be asked; return whether it answered.

    Raises:
        LongtailError: It can't be loaded.
    """
    predictor = Predictor.of_bundle(open_bundle(folder), device="cpu", num_threads=1)
    result = "answered"
    for scorer in predictor.scorers.names:
        for explain in (False, True):
            try:
                batch = predictor.read(TEXTS)
                predictor.prepare(batch, scorer)
                predictor.predict_batch(batch, RankingOptions(k=10, scorer=scorer, explain=explain))
            except LongtailError:
                result = "refused to answer"
    for row in (0, len(predictor.catalogue) - 1):
        predictor.describe(row)
    predictor.prepare_label_search()
    return result


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    main()
