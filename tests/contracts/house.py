"""How large the house is: a table that a test compares with the tree.

python tests/contracts/house.py --write  # after a change that is meant to make a figure larger
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("house.json")
PACKAGES = ("models", "training", "service", "longtail", "research", "tests")
SHIPPED = PACKAGES[:4]
FEATURES = ("promise", "review", "aim", "canary", "retired")
"""Words that files outside a folder, or a file, of this name should know little of."""


def sources(package: str, *endings: str) -> list[Path]:
    """Return the sources of a package; those of a linked one are its own."""
    found = [path for ending in endings for path in (ROOT / package).rglob(f"*.{ending}")]
    return [
        path
        for path in sorted(found)
        if path.stat().st_size and not any(x.is_symlink() for x in path.parents)
    ]


def num_lines(path: Path) -> int:
    """Return the number of lines of a file."""
    return path.read_text("utf-8").count("\n")


def figures() -> dict[str, dict[str, int]]:
    """Return all figures, by their name and what they are of."""
    files = {package: sources(package, "py") for package in PACKAGES}
    lines = {package: {x: num_lines(x) for x in some} for package, some in files.items()}
    folders = {
        package: [sum(x.parent == folder for x in some) for folder in {x.parent for x in some}]
        for package, some in files.items()
    }
    texts = {path: path.read_text("utf-8") for package in SHIPPED for path in files[package]}
    return {
        "lines": {
            **{package: sum(some.values()) for package, some in lines.items()},
            "C": sum(map(num_lines, sources("models", "c", "h"))),
        },
        "files": {package: len(some) for package, some in files.items()},
        "lines of the longest file": {
            package: max(lines[package].values()) for package in PACKAGES
        },
        "files of the fullest folder": {package: max(folders[package]) for package in PACKAGES},
        "files elsewhere that name it": {
            name: sum(map(bool, (_names(path, text, name) for path, text in texts.items())))
            for name in FEATURES
        },
    }


def _names(path: Path, text: str, feature: str) -> bool:
    word = re.compile(rf"(?<![a-zA-Z]){feature}|{feature.title()}")
    return word.search(text) is not None and word.search(str(path.relative_to(ROOT))) is None


def risen(table: dict[str, dict[str, int]], found: dict[str, dict[str, int]]) -> list[str]:
    """Return what is larger than the table allows, in words."""
    return [
        f"{name}, {of}: {found[name][of]}, expected at most {table.get(name, {}).get(of, 0)}"
        for name, some in found.items()
        for of in some
        if found[name][of] > table.get(name, {}).get(of, 0)
    ]


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        TABLE.write_text(json.dumps(figures(), indent=1) + "\n", "utf-8")
    else:
        sys.exit("\n".join(risen(json.loads(TABLE.read_text("utf-8")), figures())) or 0)
