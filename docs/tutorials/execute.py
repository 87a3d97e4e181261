"""Executes the notebooks of this folder, each in an empty folder, and stores what they show.

    python docs/tutorials/execute.py                          # all of them
    python docs/tutorials/execute.py own-csv-to-service --check   # nothing is stored

The first cell that fails ends it, with a traceback. Log lines and progress bars, which differ from
run to run, are not stored. Services listen on a free port.
"""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
_CELL_TIMEOUT_S = 900


def main() -> None:
    """Execute the notebooks that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--check", action="store_true", help="store nothing")
    chosen = parser.parse_args()
    for name in chosen.names or known:
        path = FOLDER / f"{name}.ipynb"
        notebook = executed(path)
        if not chosen.check:
            path.write_text(nbformat.writes(storable(notebook)) + "\n", encoding="utf-8")
        print(f"{name}: {len(notebook.cells)} cells")


def executed(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with its outputs.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell failed.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder) / "empty"
        here.mkdir()
        _prepare_environment(Path(folder))
        NotebookClient(
            notebook,
            timeout=_CELL_TIMEOUT_S,
            kernel_name="python3",
            resources={"metadata": {"path": str(here)}},
        ).execute()
    return notebook


def storable(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return a notebook without what is another thing in every run."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = _joined(each for each in cell.outputs if each.get("name") != "stderr")
    return notebook


def _joined(outputs: Iterable[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Return outputs with what was printed in pieces as one."""
    found: list[nbformat.NotebookNode] = []
    for each in outputs:
        if found and each.output_type == found[-1].output_type == "stream":
            found[-1].text += each.text
        else:
            found.append(each)
    return found


def _prepare_environment(folder: Path) -> None:
    """Let `longtail` be the command of this checkout, on a free port, and Jupyter write nowhere."""
    command = folder / "bin" / "longtail"
    command.parent.mkdir()
    words = shlex.join([sys.executable, "-m", "longtail"])
    command.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    for name in [name for name in os.environ if name.startswith("LONGTAIL_")]:
        del os.environ[name]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ |= {
        "PATH": os.pathsep.join([str(command.parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "LONGTAIL_PORT": str(port),
        "LONGTAIL_DRAIN_DELAY_S": "0",
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(folder / "jupyter"),
        "JUPYTER_PLATFORM_DIRS": "1",
    }


if __name__ == "__main__":
    main()
