"""What an installation takes: packages, disk and import time, of the base and with each extra.

    python tests/bench/install_sizes.py base cpu plots sharing

Nothing is installed for it: of the packages of this environment those are counted that
`pyproject.toml` asks for, and what these ask for, by the files that pip wrote of each. The import
is that of `longtail` or of the modules of the extra, in CPU time, the least of three processes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from machine import begin
from packaging.requirements import Requirement
from recording import Table, add_json_option, keep

from longtail.models.extras import PACKAGES

ROOT = Path(__file__).parents[2]
BASE = "base"
TIMED = "import time; t = time.process_time(); import {}; print(time.process_time() - t)"


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {BASE: [], **project["optional-dependencies"]}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="+", choices=list(extras))
    add_json_option(parser)
    chosen = begin(parser)
    table = Table({
        "installed": "", "packages": "", "MB": ".0f", "MB of byte code": ".0f",
        "import, CPU s": ".3f",
    })  # fmt: skip
    for extra in chosen.extras:
        found: dict[str, Distribution] = {}
        for line in [*project["dependencies"], *extras[extra]]:
            add_needed(Requirement(line), found)
        code, byte_code = size_of(found, is_byte_code=False), size_of(found, is_byte_code=True)
        name = "longtail" if extra == BASE else f"longtail[{extra}]"
        seconds = import_seconds(*(["longtail"] if extra == BASE else PACKAGES.get(extra, ())))
        table.add(name, len(found), code / 1e6, byte_code / 1e6, seconds)
    keep(chosen.json, {"sizes": table.to_json()}, seeds=[])


def add_needed(asked: Requirement, found: dict[str, Distribution]) -> None:
    """Add what a requirement asks for, and what that needs; extras of requirements count."""
    here = {"extra": ""}
    name = re.sub(r"[-_.]+", "-", asked.name).lower()
    if (asked.marker and not asked.marker.evaluate(here)) or (name in found and not asked.extras):
        return
    found[name] = distribution(asked.name)
    for line in found[name].requires or ():
        needed = Requirement(line)
        wanted = [{"extra": each} for each in ("", *asked.extras)]
        if needed.marker is None or any(needed.marker.evaluate(each) for each in wanted):
            needed.marker = None
            add_needed(needed, found)


def size_of(found: dict[str, Distribution], *, is_byte_code: bool) -> int:
    return sum(path.stat().st_size for path in files_of(found, is_byte_code=is_byte_code))


def files_of(found: dict[str, Distribution], *, is_byte_code: bool) -> Iterator[Path]:
    for each in found.values():
        for file in each.files or ():
            path = Path(str(file.locate()))
            if path.is_file() and (path.suffix == ".pyc") == is_byte_code:
                yield path


def import_seconds(*modules: str) -> float | None:
    """Return the least CPU time of a few new processes; None of no modules."""
    if not modules:
        return None
    command = [sys.executable, "-c", TIMED.format(", ".join(modules))]
    times = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(3)]
    return min(float(done.stdout) for done in times)


if __name__ == "__main__":
    main()
