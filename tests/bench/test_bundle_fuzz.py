"""Bundles with one thing changed and hashes that fit; `make fuzz` tries many more of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("bundle_fuzz.py")


def test_changed_bundles_are_refused_or_answer(trained, trained_sparse):
    bundles = [str(each.bundle.folder) for each in (trained, trained, trained_sparse)]
    count, seed = os.environ.get("FUZZ_BUNDLES", "200"), os.environ.get("FUZZ_SEED", "0")
    done = subprocess.run(
        [sys.executable, SCRIPT, *bundles, "--count", count, "--seed", seed],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert f"{count} changes" in done.stdout
