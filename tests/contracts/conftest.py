"""The wheel, built once."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("longtail", "models", "training", "service")
OTHERS = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """Build it from a source distribution of a copy, so that nothing is left in the checkout."""
    pytest.importorskip("setuptools", minversion="77")
    source, built = (tmp_path_factory.mktemp(name) for name in ("source", "built"))
    for name in PACKAGES:
        left_out = shutil.ignore_patterns("__pycache__", "kernels-*")
        shutil.copytree(ROOT / name, source / name, ignore=left_out, symlinks=True)
    for name in OTHERS:
        shutil.copy(ROOT / name, source)
    code = f"from setuptools.build_meta import build_sdist; build_sdist({str(built)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    (packed,) = built.glob("longtail-*.tar.gz")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--wheel-dir", str(built), str(packed)]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = built.glob("longtail-*.whl")
    return path
