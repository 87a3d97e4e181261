"""Promotions of candidates under load, bad ones among them: who is promoted, and what fails.

    python tests/bench/promotions.py REGISTRY training/demo_data [--promotions 10]

Candidates are copies of the registry's current version, which are as good as it is, and of it:

    worse           the weights of its sparse model have the wrong sign
    worse, unjudged the same, with rules by which the held-out documents refuse nothing
    damaged         a byte of a file is another one
    not finite      its weights are no numbers

Each is given to `longtail promote`, a process of its own, while so many connections ask for labels,
each again as soon as it is answered.

Bars: every copy is promoted, nothing else is; no failed request; after each promotion the service
answers with the version that was expected.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from load_generator import Asking, predict_requests, saturate
from machine import begin
from recording import Table, add_json_option, keep
from served_process import Served, served
from service_throughput import read_texts

from longtail.models.bundle.bundle import LABELS_NAME, Bundle, write_bundle
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.registry import Registry
from longtail.service.client.client import Client
from longtail.service.http.api_keys import make_key

SPARSE = "sparse.safetensors"
KEY_VARIABLE = "BENCH_ADMIN_KEY"
JUDGES_NOTHING = (
    "margin=1",
    "band_margin=1",
    "max_calibration_rise=1",
    "max_slowdown=100",
    "require=not-worse",
)
COLUMNS = {"what": "", "verdict": "", "as expected": "", "seconds": ".0f", "told": ""}
Weights = dict[str, np.ndarray]


def publish(source: Bundle, registry: Registry, name: str, spoil: Callable[[Weights], None]) -> int:
    """Publish a copy with other weights of its sparse model; it is not made current."""
    manifest = replace(source.manifest, data_fingerprint=name)
    files = [file for file in manifest.files if file != LABELS_NAME]
    files = [file for file in files if not file.startswith("encoder/")]
    tensors = {file: source.tensors(file) for file in files if file.endswith(".safetensors")}
    spoil(tensors[SPARSE])

    def write(folder: Path) -> Manifest:
        return write_bundle(
            folder,
            manifest=manifest,
            catalogue=source.catalogue,
            tensors=tensors,
            texts={file: source.text(file) for file in files if file not in tensors},
            encoder_folder=source.encoder_folder if manifest.encoder else None,
        )

    return registry.publish(write, activate=not registry.versions())


def as_it_is(_: Weights) -> None:
    """Spoil nothing."""


def with_wrong_signs(weights: Weights) -> None:
    """Let all weights speak for the opposite."""
    weights["data"][:] = -weights["data"]


def without_numbers(weights: Weights) -> None:
    """Let all weights be nan."""
    weights["data"][:] = np.nan


def damage(folder: Path) -> None:
    """Change the last byte of a file."""
    path = folder / SPARSE
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def promote(
    version: int,
    registry: Registry,
    service: Served,
    chosen: argparse.Namespace,
    rules: tuple[str, ...],
) -> tuple[int, float, str]:
    """Run the command; return its exit status, its seconds, and its last line."""
    started = time.monotonic()
    command = [sys.executable, "-m", "longtail", "promote", "--candidate", str(version)]
    command += ["--data", str(chosen.data), "--registry", str(registry.folder)]
    command += ["--url", f"http://127.0.0.1:{service.port}", "--api-key-env", KEY_VARIABLE]
    command += ["--minutes", str(chosen.minutes), "--share", str(chosen.share)]
    for rule in rules:
        command += ["--set", rule]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    return done.returncode, time.monotonic() - started, told[-1] if told else ""


def measure(
    registry: Registry, source: Bundle, service: Served, key: str, chosen: argparse.Namespace
) -> None:
    """Promote one candidate after the other, and print what came of it."""
    short = f"min_requests={chosen.min_requests}"
    good = ("require=not-worse", f"max_slowdown={chosen.max_slowdown}", short)
    plan = [("copy", as_it_is, good, True)] * chosen.promotions
    bad = [
        ("worse", with_wrong_signs, good, False),
        ("worse, unjudged", with_wrong_signs, JUDGES_NOTHING, False),
        ("damaged", as_it_is, good, False),
        ("not finite", without_numbers, good, False),
    ]
    plan[1:1] = bad  # after one good one
    expected, is_right, table = 1, True, Table(COLUMNS)
    requests = predict_requests(read_texts("titles", 500), k=5)
    with Asking(lambda: saturate(service.port, requests, chosen.connections, 3)) as asking:
        for number, (kind, spoil, rules, is_good) in enumerate(plan, 1):
            version = publish(source, registry, f"{kind} {number}", spoil)
            if kind == "damaged":
                damage(registry.folder / str(version))
            status, seconds, told = promote(version, registry, service, chosen, rules)
            expected = version if is_good else expected
            with Client(f"http://127.0.0.1:{service.port}", key=key) as client:
                shares = {x.version: x.traffic_share for x in client.models().models}
            is_as_expected = (status == 0) == is_good and shares.get(expected) == 1.0
            is_right &= is_as_expected
            verdict = "promoted" if status == 0 else "refused"
            table.add(kind, verdict, "yes" if is_as_expected else "NO", seconds, told)
    failed = sum(n for status, n in asking.statuses.items() if status != 200)
    print(f"requests: {dict(asking.statuses)}; failed: {failed} (bar: 0)")
    print(f"all as expected: {is_right} (bar: True)")
    keep(chosen.json, {"promotions": table, "requests": asking.statuses[200], "failed": failed})


def main() -> None:
    """Serve a copy of the current version, and promote others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--promotions", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=0.25)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--min-requests", type=int, default=100, help="Of a canary.")
    parser.add_argument("--max-slowdown", type=float, default=2.0, help="The machine is full.")
    add_json_option(parser)
    chosen = begin(parser)
    key, entry = make_key("bench")
    os.environ[KEY_VARIABLE] = key
    with tempfile.TemporaryDirectory() as folder:
        registry = Registry(Path(folder) / "registry")
        source = Registry(chosen.registry).open()
        publish(source, registry, "first", as_it_is)
        options = ("--admin-keys", entry, "--watch-interval-s", "0")
        with served(registry.folder, *options) as service:
            measure(registry, source, service, key, chosen)


if __name__ == "__main__":
    main()
