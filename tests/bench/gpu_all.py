"""Everything that needs a GPU, in at most nine minutes, most valuable first.

    python tests/bench/gpu_all.py --data EURLEX57K [--minutes 9] [--json docs/results/gpu_all.json]
    python tests/bench/gpu_all.py --device cpu --quick --minutes 3

The steps: the tests marked `gpu`; searches with and without the tree, by both indexes; the demo,
trained; that service under load, with swaps; EURLEX57K (or another corpus), trained for what time
is left, and its dev table. The file is written after each step, so that a machine that goes away
leaves what was measured. A step that fails or takes too long is noted, and the next one begins.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from machine import begin
from recording import keep

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "tests" / "bench"
DEMO = ROOT / "training" / "demo_data"
_EVALUATION_S = 60
"""Kept of the last step's time for its dev table."""
_LAST_LINES = 4000


@dataclass(frozen=True, slots=True)
class Step:
    """One command.

    Attributes:
        name: Of what it measures.
        most_s: Seconds after which it is ended.
        command: Without the interpreter.
        record: The file of figures that it writes; None: its last lines are the figures.
    """

    name: str
    most_s: float
    command: Sequence[str]
    record: Path | None = None


def steps(options: argparse.Namespace, work: Path) -> Iterator[Step]:
    """Yield the steps but the last, whose time depends on these."""
    is_quick, device = options.quick, options.device
    if device == "cuda":
        folders = ("ranking", "label_tree", "encoders", "predict")
        yield Step("gpu tests", 90, ["-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider",
                                     *(f"tests/models/{x}" for x in folders)])  # fmt: skip
    sizes = ["1000", "6000"] if is_quick else ["10000", "100000", "1000000"]
    searches = [str(BENCH / "gpu.py"), "--device", device, "--no-training", "--sizes", *sizes]
    record = work / "searches.json"
    rounds = ["--quick"] if is_quick else ["--rounds", "20"]
    yield Step("searches", 150, [*searches, *rounds, "--json", str(record)], record)
    registry, train = str(work / "registry"), ["-m", "longtail", "train", str(DEMO)]
    train += ["--registry", registry, "--work", str(work / "demo")]
    train += ["--config", "sparse"] if is_quick else ["--config", "training/configs/demo.yaml"]
    yield Step("demo", 100, train)
    record = work / "service.json"
    load = ["--swaps", "2" if is_quick else "6", "--without", "3" if is_quick else "10"]
    load += ["--warm-up", "1" if is_quick else "10", "--json", str(record)]
    swaps = [str(BENCH / "service_swaps.py"), registry, *load]
    yield Step("service under load", 90, swaps, record)


def last_steps(options: argparse.Namespace, work: Path, left_s: float) -> Iterator[Step]:
    """Yield the training of a corpus for the time that is left, and its dev table."""
    minutes = (left_s - _EVALUATION_S) / 60
    registry = ["--registry", str(work / "corpus")]
    train = ["-m", "longtail", "train", str(options.data), *registry, "--work", str(work / "run")]
    train += ["--config", "sparse"] if options.quick else [
        "--config", "training/configs/gpu.yaml", "--budget", f"{minutes:.1f}m",
    ]  # fmt: skip
    yield Step("training", left_s, train)
    record = work / "dev.json"
    evaluate = ["-m", "longtail", "evaluate", str(options.data), *registry, "--split", "dev"]
    evaluate += ["--no-baselines", "--output", str(work / "dev"), "--json", str(record)]
    yield Step("dev table", 2 * _EVALUATION_S, evaluate, record)


def measured(step: Step, left_s: float, work: Path, patience: float = 1) -> dict[str, Any]:
    """Run a step; return how it ended, its seconds and figures."""
    limit, started = max(0.0, min(patience * step.most_s, left_s)), time.monotonic()
    output = work / f"{step.name}.log"
    with output.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, *step.command], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(limit)
            end = "done" if status == 0 else f"failed with exit status {status}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # what it started, such as a service, too
            process.wait()
            end = f"ended after {limit:.0f} s"
    tail = output.read_text("utf-8", errors="replace")[-_LAST_LINES:]
    figures = None
    if step.record is not None and step.record.is_file():
        figures = json.loads(step.record.read_text("utf-8"))
    return {
        "step": step.name,
        "end": end,
        "seconds": round(time.monotonic() - started, 1),
        "figures": figures,
        "last lines": tail,
    }


def main() -> int:
    """Run all steps; the exit status is 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny settings, to try the script")
    parser.add_argument("--patience", type=float, default=1, help="times as long for each step")
    parser.add_argument("--minutes", type=float, default=9, help="for everything")
    parser.add_argument("--data", type=Path, default=DEMO, help="the corpus to train on at last")
    parser.add_argument("--json", type=Path, default=Path("gpu_all.json"), help="the record")
    started = time.monotonic()
    options = begin(parser)
    deadline = started + 60 * options.minutes
    options.data, found = options.data.resolve(), []
    with TemporaryDirectory() as name:
        work = Path(name)

        def run(several: Iterator[Step]) -> None:
            for step in several:
                left_s = deadline - time.monotonic()
                found.append(measured(step, left_s, work, options.patience))
                print(f"{step.name}: {found[-1]['end']}, {found[-1]['seconds']} s", flush=True)
                keep(options.json, {"steps": found})

        run(steps(options, work))
        run(last_steps(options, work, deadline - time.monotonic()))
    return int(any(each["end"] != "done" for each in found))


if __name__ == "__main__":
    sys.exit(main())
