"""Which wheels there are for each platform and Python: resolves the base install and extras.

    python docs/platforms.py [--extras "" cpu] [--json docs/results/platforms.json]

pip evaluates the markers of requirements for the machine it runs on. So the closure is walked here:
each step asks pip, with `--no-deps --only-binary=:all: --python-version --platform`, for the
requirements known so far, and adds the requirements of these whose markers hold on the platform.
Nothing is installed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from longtail.training.evaluation.record import make_record, write_record

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_MACS = [f"macosx_{x}_0_{y}" for x in range(15, 10, -1) for y in ("arm64", "universal2")]
PLATFORMS: Mapping[str, tuple[list[str], Mapping[str, str]]] = {
    "Linux x86_64": (
        [*(f"manylinux_2_{x}_x86_64" for x in (*range(28, 16, -1), 12, 5)), "manylinux2014_x86_64"],
        {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"},
    ),
    "Linux aarch64": (
        [*(f"manylinux_2_{x}_aarch64" for x in range(28, 16, -1)), "manylinux2014_aarch64"],
        {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "aarch64"},
    ),
    "macOS arm64": (
        [*_MACS, "macosx_10_13_universal2", "macosx_10_9_universal2"],
        {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"},
    ),
    "Windows x86_64": (
        ["win_amd64"],
        {"sys_platform": "win32", "platform_system": "Windows", "platform_machine": "AMD64"},
    ),
}
"""Tags that pip accepts, newest first, and the values of markers."""


def requirements_of(extra: str) -> list[Requirement]:
    """Return the direct requirements of the base install, with those of an extra unless empty."""
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    lines = project["dependencies"] + (project["optional-dependencies"][extra] if extra else [])
    return [Requirement(line) for line in lines]


def resolved(
    wanted: Iterable[str], python: str, tags: Iterable[str]
) -> tuple[list[dict[str, Any]], str]:
    """Return metadata of the wheels that pip finds, and its error if there is none for one."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps",
            "--quiet", "--only-binary=:all:", "--target", folder, "--report", str(report),
            "--python-version", python, *(x for tag in tags for x in ("--platform", tag)), *wanted,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return [], errors[-1] if errors else done.stderr[-300:]
        return [x["metadata"] for x in json.loads(report.read_text("utf-8"))["install"]], ""


def closure(extra: str, python: str, platform: str) -> tuple[int, str]:
    """Return how many packages an install takes, and which lacks a wheel, in pip's words."""
    tags, values = PLATFORMS[platform]
    environment = {
        **default_environment(), **values, "python_version": python,
        "python_full_version": f"{python}.0",
    }  # fmt: skip
    specifiers: dict[str, set[str]] = {}
    extras: dict[str, set[str]] = {}
    changed = _added(requirements_of(extra), {""}, environment, specifiers, extras)
    while changed:
        wanted = [f"{x}{','.join(sorted(filter(None, specifiers[x])))}" for x in sorted(changed)]
        found, error = resolved(wanted, python, tags)
        if error:
            return len(specifiers), error
        changed = set()
        for each in found:
            name = canonicalize_name(each["name"])
            lines = map(Requirement, each.get("requires_dist", ()))
            changed |= _added(lines, extras[name], environment, specifiers, extras)
    return len(specifiers), ""


def _added(
    requirements: Iterable[Requirement],
    of_extras: set[str],
    environment: Mapping[str, str],
    specifiers: dict[str, set[str]],
    extras: dict[str, set[str]],
) -> set[str]:
    """Add the requirements whose markers hold; return the names that are asked for differently."""
    changed = set()
    for each in requirements:
        marker = each.marker
        if marker and not any(marker.evaluate({**environment, "extra": x}) for x in of_extras):
            continue
        name = canonicalize_name(each.name)
        known = specifiers.setdefault(name, set()), extras.setdefault(name, {""})
        if name not in changed and (not known[0] or not each.extras <= known[1]):
            changed.add(name)
        known[0].add(str(each.specifier))
        known[1].update(each.extras)
    return changed


def main() -> int:
    """Print a table: packages for each platform and Python, or the requirement without a wheel."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--extras", nargs="*", default=["", "cpu"])
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    rows: list[list[str | int]] = []
    errors = 0
    for extra in chosen.extras:
        for platform in PLATFORMS:
            row: list[str | int] = [extra or "base", platform]
            for python in PYTHONS:
                number, error = closure(extra, python, platform)
                errors += bool(error)
                row.append(f"no: {error.rpartition('for ')[2]}" if error else number)
            print(*row, sep=" | ", flush=True)
            rows.append(row)
    if chosen.json:
        columns = [{"name": name} for name in ("install", "platform", *PYTHONS)]
        write_record(chosen.json, make_record({"packages": {"columns": columns, "rows": rows}}))
    return min(errors, 1)


if __name__ == "__main__":
    sys.exit(main())
