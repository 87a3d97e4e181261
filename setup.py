"""Builds the package, and is its own build backend: all else about it is in pyproject.toml.

    LONGTAIL_WHEEL=musllinux_1_2_x86_64 python -m pip wheel ...  # for another platform, by zig

A wheel holds compiled kernels and says in `sboms/` what they are and what compiled them. With
SOURCE_DATE_EPOCH set, the same sources give the same bytes, of wheels and of source distributions.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import io
import json
import os
import runpy
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from setuptools import Distribution, build_meta, setup
from setuptools.build_meta import *  # noqa: F403  # the hooks that are not below
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
if not (ROOT / "longtail" / "models").is_dir():
    sys.exit(
        f"{ROOT / 'longtail' / 'models'} is a file, expected a link to a folder: this checkout was "
        "made without symbolic links. Run 'git config core.symlinks true' and 'git checkout -f "
        "HEAD -- longtail' (on Windows with its developer mode switched on), or install a release"
    )
native = runpy.run_path(str(ROOT / "longtail/models/native/build.py"))

ZIG = "ziglang>=0.13,<0.18"
TARGETS = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
    "win_amd64": "x86_64-windows-gnu",
}
"""What zig compiles for each platform of a release."""
PLATFORM = os.environ.get("LONGTAIL_WHEEL")


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Return what a build needs: a compiler where there is none."""
    found = build_meta.get_requires_for_build_wheel(config_settings)
    return [*found, *([ZIG] if PLATFORM or native["find_compiler"]() is None else [])]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """Return what an editable install needs."""
    return get_requires_for_build_wheel(config_settings)


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Build a source distribution whose bytes follow from its content."""
    name = build_meta.build_sdist(sdist_directory, config_settings)
    path, buffer = Path(sdist_directory, name), io.BytesIO()
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0")) or int(path.stat().st_mtime)
    with tarfile.open(path) as old, tarfile.open(fileobj=buffer, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode, member.pax_headers = 0o755 if member.isdir() else 0o644, {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    path.write_bytes(gzip.compress(buffer.getvalue(), mtime=epoch))
    return name


class BuildWithKernels(build_py):
    """Compiles the C sources beside their copies, or beside themselves in an editable install."""

    def run(self) -> None:
        """Copy the Python files, then compile."""
        super().run()
        in_place = getattr(self, "editable_mode", False)
        native["build"](
            native["FOLDER"] if in_place else Path(self.build_lib, "longtail/models/native"),
            TARGETS[PLATFORM] if PLATFORM else None,
        )


class PlatformWheel(bdist_wheel):
    """Tags a wheel for one platform and every version of Python, whose API no kernel uses."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags."""
        return "py3", "none", PLATFORM or super().get_tag()[2]

    def write_wheelfile(self, wheelfile_base: str, *arguments: Any, **options: Any) -> None:
        """Write the description of the wheel, and of the compiled code in it (PEP 770)."""
        super().write_wheelfile(wheelfile_base, *arguments, **options)
        folder = Path(wheelfile_base, "sboms")
        folder.mkdir()
        parts = sorted(Path(self.bdist_dir).rglob("kernels-*"))
        content = json.dumps(sbom(self.distribution, parts), indent=1)
        (folder / "longtail.cdx.json").write_text(content, encoding="utf-8", newline="\n")


def sbom(package: Distribution, libraries: list[Path]) -> dict[str, Any]:
    """Return what compiled libraries are and what made them, in the form of CycloneDX."""
    compiler = native["find_compiler"](PLATFORM and TARGETS[PLATFORM])
    with tempfile.TemporaryDirectory() as cache:  # else zig keeps one at home
        environment = {"ZIG_GLOBAL_CACHE_DIR": cache, **os.environ}
        told = subprocess.run(  # noqa: S603
            [*compiler, "--version"], capture_output=True, text=True, check=True, env=environment
        )
    made_by = told.stdout.splitlines()[0]
    if "ziglang" in compiler:
        made_by += f", zig {importlib.metadata.version('ziglang')}"
    name, version = package.get_name(), package.get_version()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "metadata": {
            "component": {
                "type": "library", "name": name, "version": version,
                "purl": f"pkg:pypi/{name}@{version}",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
            "tools": {"components": [{"type": "application", "name": made_by}]},
        },
        "components": [
            {
                "type": "file", "name": path.name,
                "hashes": [
                    {"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}
                ],
            }
            for path in libraries
        ],
    }  # fmt: skip


class PlatformDistribution(Distribution):
    """A package with compiled code."""

    def has_ext_modules(self) -> bool:
        """Return that there is some."""
        return True


if __name__ == "__main__":  # setuptools runs this file, after a build has imported it
    setup(
        cmdclass={"build_py": BuildWithKernels, "bdist_wheel": PlatformWheel},
        distclass=PlatformDistribution,
    )
