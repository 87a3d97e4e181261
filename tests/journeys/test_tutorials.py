"""The notebooks of docs/tutorials: each runs in an empty folder, and its outputs are stored."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
notebook = pytest.mark.parametrize("name", NAMES)


def read(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


@notebook
def test_every_cell_runs_in_an_empty_folder(name):
    """In a process of its own, whose environment Jupyter and the notebook may change."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / "execute.py"), name, "--check"],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout == f"{name}: {len(read(name).cells)} cells\n"
