"""Which wheels there are for each platform and Python: resolves the base install and extras.

    python docs/platforms.py [--extras "" cpu] [--json docs/results/platforms.json]

The command `uv` (pip install uv) resolves as if on the platform, from wheels alone; nothing is
installed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
from pathlib import Path

from longtail.training.evaluation.record import make_record, write_record

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {
    "Linux x86_64": "x86_64-manylinux_2_28",
    "Linux aarch64": "aarch64-manylinux_2_28",
    "macOS arm64": "aarch64-apple-darwin",
    "Windows x86_64": "x86_64-pc-windows-msvc",
}
"""Names of uv; macOS 14, of which FAISS has wheels."""


def requirements_of(extra: str) -> list[str]:
    """Return the direct requirements of the base install, with those of an extra unless empty."""
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    return [*project["dependencies"], *(project["optional-dependencies"][extra] if extra else [])]


def resolved(extra: str, platform: str, python: str) -> tuple[int, str]:
    """Return how many packages an install takes; or 0, and which has no wheel, in uv's words."""
    command = ["uv", "pip", "compile", "-", "--only-binary=:all:", "--no-header", "--no-annotate"]
    command += [f"--python-platform={PLATFORMS[platform]}", f"--python-version={python}", "--quiet"]
    lines = "\n".join(requirements_of(extra))
    done = subprocess.run(
        command, input=lines, capture_output=True, text=True, check=False,
        env={**os.environ, "MACOSX_DEPLOYMENT_TARGET": "14.0"},
    )  # fmt: skip
    if done.returncode:
        return 0, " ".join(done.stderr.split())
    return len(done.stdout.splitlines()), ""


def main() -> int:
    """Print a table: packages for each platform and Python, 0 where one has no wheel."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--extras", nargs="*", default=["", "cpu"])
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    rows: list[list[str | int]] = []
    for extra in chosen.extras:
        for platform in PLATFORMS:
            found = [resolved(extra, platform, python) for python in PYTHONS]
            rows.append([extra or "base", platform, *(number for number, _ in found)])
            print(*rows[-1], *(error for _, error in found if error), sep=" | ", flush=True)
    if chosen.json:
        columns = [{"name": name} for name in ("install", "platform", *PYTHONS)]
        write_record(chosen.json, make_record({"packages": {"columns": columns, "rows": rows}}))
    return int(any(0 in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
