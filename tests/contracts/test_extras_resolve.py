"""Pip's resolver on every extra: on Linux, x86-64, from the package index; nothing is installed."""

import json
import platform
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
NOT_AT_HAND = "torch!=2.13.0"
"""Rules out a CPU build that a machine may have at hand, with which pip would be content."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="of Linux on x86-64"
    ),
]


def resolved(*requirements: str, timeout: int = 900) -> dict[str, str]:
    """Return the file of each package that pip would install; nothing where it can't."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet",
               "--report=-", "--only-binary=:all:", *requirements]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    if done.returncode:
        raise AssertionError(f"{requirements}: {done.stderr[-2000:]}")
    items = json.loads(done.stdout[done.stdout.index("{") :])["install"]
    return {each["metadata"]["name"].lower(): each["download_info"]["url"] for each in items}


@pytest.fixture(scope="module")
def index():
    """Skip where no package index can be reached."""
    try:
        resolved("safetensors", timeout=60)
    except (AssertionError, subprocess.TimeoutExpired):
        pytest.skip("no package index")


def stacks(names: dict[str, str]) -> set[str]:
    """Return the releases of CUDA that packages are for; from 13 on, most names tell none."""
    nvidia = [re.search(r"-cu(\d+)$", name) for name in names if name.startswith("nvidia-")]
    return {found[1] if found else "13" for found in nvidia}


def test_every_extra_can_be_installed_beside_the_others(index):
    others = [each for extra, own in EXTRAS.items() if extra != "gpu" for each in own]
    assert "faiss-cpu" in resolved(*PROJECT["dependencies"], *others)


def test_the_extra_of_gpus_can_be_installed(index):
    found = resolved(*PROJECT["dependencies"], *EXTRAS["gpu"], NOT_AT_HAND)
    assert "+cpu" not in found["torch"] and "faiss-gpu" in found
    assert stacks(found) == {"12"}, sorted(found)
