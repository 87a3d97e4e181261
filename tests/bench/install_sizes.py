"""What an installation takes: packages, disk and import time, of the base and with each extra.

    python tests/bench/install_sizes.py base cpu plots sharing

Each is installed by pip into an environment of its own that is removed afterwards: the wheel of
this checkout, everything else as the package index has it, at the versions of
`docker/constraints.txt`. pip itself is not counted. `import longtail` is what
`python -X importtime` says, the least of nine; the extra's own modules are imported in one new
process, the least of three.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

from machine import begin
from recording import Table, add_json_option, keep

from longtail.models.extras import PACKAGES

ROOT = Path(__file__).parents[2]
BASE = "base"
OTHERS = {"database": ("sqlalchemy",)}
"""What is imported of extras that `PACKAGES` has not."""
SIZE = """
import json
from importlib.metadata import distributions
found = {each.metadata["Name"]: each for each in distributions()}
found = {name: each for name, each in found.items() if name not in ("pip", "setuptools")}
files = {path.locate() for each in found.values() for path in each.files or ()}
files = {path for path in files if path.is_file()}
code = sum(path.stat().st_size for path in files if path.suffix != ".pyc")
byte_code = sum(path.stat().st_size for path in files if path.suffix == ".pyc")
print(json.dumps([len(found), code, byte_code]))
"""
TIMED = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def main() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    choices = [BASE, *extras["optional-dependencies"]]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="+", choices=choices)
    add_json_option(parser)
    chosen = begin(parser)
    table = Table({
        "installed": "", "packages": "", "MB": ".0f", "MB of byte code": ".0f",
        "import longtail, ms": ".0f", "import what it adds, s": ".2f",
    })  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="longtail-sizes-") as folder:
        wheel = build_wheel(Path(folder))
        for extra in chosen.extras:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                python = install(Path(place), wheel, extra)
                number, code, byte_code = json.loads(ask(python, "-c", SIZE))
                own = import_seconds(python, PACKAGES.get(extra) or OTHERS.get(extra, ()))
                table.add(named(extra), number, code / 1e6, byte_code / 1e6, import_ms(python), own)
    keep(chosen.json, {"sizes": table.to_json()}, seeds=[])


def named(extra: str) -> str:
    return "longtail" if extra == BASE else f"longtail[{extra}]"


def build_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("longtail-*.whl")
    return wheel


def install(place: Path, wheel: Path, extra: str) -> Path:
    """Install into a new environment and return its Python."""
    venv.create(place, with_pip=True, symlinks=True)
    what = str(wheel) if extra == BASE else f"{wheel}[{extra}]"
    python = place / "bin" / "python"
    command = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    ask(python, *command, "--constraint", str(ROOT / "docker" / "constraints.txt"), what)
    return python


def ask(python: Path, *arguments: str) -> str:
    done = subprocess.run([python, "-I", *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def import_ms(python: Path) -> float:
    """Return what `import longtail` takes, as Python itself counts it."""
    command = [str(python), "-I", "-X", "importtime", "-c", "import longtail"]
    found = []
    for _ in range(9):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        line = next(x for x in done.stderr.splitlines() if x.endswith("| longtail"))
        found.append(int(re.split(r"[|:]", line)[2]) / 1000)
    return min(found)


def import_seconds(python: Path, modules: tuple[str, ...]) -> float | None:
    if not modules:
        return None
    return min(float(ask(python, "-c", TIMED.format(", ".join(modules)))) for _ in range(3))


if __name__ == "__main__":
    main()
