"""Lists the benchmarks: `python tests/bench` prints the name of each and what it measures."""

from __future__ import annotations

import ast
from pathlib import Path

FOLDER = Path(__file__).parent


def benchmarks() -> dict[str, str]:
    """Return the first line of each program's description, by its path in this folder."""
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in sorted(FOLDER.rglob("*.py"))
        if path.name != "__main__.py" and path.parent.name != "programs"
    }
    return {
        str(path.relative_to(FOLDER)): str(ast.get_docstring(ast.parse(text))).partition("\n")[0]
        for path, text in texts.items()
        if "\nif __name__ ==" in text
    }


if __name__ == "__main__":
    for name, what in benchmarks().items():
        print(f"{name:28} {what}")
