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


def code_cells(name: str) -> list[Any]:
    return [cell for cell in read(name).cells if cell.cell_type == "code"]


@notebook
def test_every_cell_runs_in_an_empty_folder(name):
    """In a process of its own, whose environment Jupyter and the notebook may change."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / "execute.py"), name, "--check"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout == f"{name}: {len(read(name).cells)} cells\n"


@notebook
def test_what_is_stored_is_what_a_whole_run_showed(name):
    nbformat.validate(read(name))
    numbers = [cell.execution_count for cell in code_cells(name)]
    assert numbers == list(range(1, len(numbers) + 1))
    kinds = {output.output_type for cell in code_cells(name) for output in cell.outputs}
    assert "error" not in kinds and kinds & {"stream", "execute_result"}
