"""Without the extras a model without an encoder is trained, measured, served and corrected."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest

import longtail
from longtail.models import extras
from longtail.models.errors import ConfigError
from longtail.models.extras import PACKAGES, is_installed
from longtail.models.kinds.storage import read_parts

ROOT = Path(longtail.__file__).parents[1]
ABSENT = {x.split(".")[0] for modules in PACKAGES.values() for x in modules} - {"opentelemetry"}
"""FastAPI needs a part of the latter itself."""
BLOCKER = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {sorted(ABSENT)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""


def test_what_is_missing_is_said_with_the_command_that_installs_it(monkeypatch, trained):
    found = extras._is_found
    monkeypatch.setattr(extras, "_is_found", lambda name: name != "transformers" and found(name))
    assert not is_installed("cpu")
    with pytest.raises(
        ConfigError, match=r"its encoder needs transformers, which .*longtail\[cpu\]"
    ):
        read_parts(trained.bundle)


def test_a_folder_of_the_name_of_a_package_is_none(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(PACKAGES, "mcp", ("not_a_package",))
    (tmp_path / "not_a_package").mkdir()
    assert not is_installed("mcp")
    (tmp_path / "not_a_package" / "__init__.py").write_text("", "utf-8")
    assert is_installed("mcp")


def test_every_extra_installs_the_packages_that_it_is_asked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared = {
        name: {re.split(r"[\[<>=; ]", line)[0] for line in lines}
        for name, lines in project["optional-dependencies"].items()
    }
    base = {re.split(r"[\[<>=; ]", line)[0] for line in project["dependencies"]}
    distributions = packages_distributions()
    for extra, modules in PACKAGES.items():
        for module in modules:
            if (top := module.split(".")[0]) in distributions:
                names = {name.lower().replace("_", "-") for name in distributions[top]}
                assert names & declared[extra] and not names & base, (extra, module)
    assert declared["gpu"] == declared["cpu"] | {"faiss-gpu"}  # as "faiss" has it for a CPU


def lazily_imported() -> list[str]:
    """Return the modules of this package that commands import when they run, not before."""
    found = set()
    folders = ("training/commands", "service/commands", "longtail", "longtail/commands")
    paths = [path for folder in folders for path in (ROOT / folder).glob("*.py")]
    of_extensions = (ROOT.glob(f"longtail/ext/*/{x}.py") for x in ("command", "extension"))
    for path in (*paths, *chain.from_iterable(of_extensions)):
        for function in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(function, ast.FunctionDef):
                imports = (x for x in ast.walk(function) if isinstance(x, ast.ImportFrom))
                found |= {x.module or "" for x in imports}
    return sorted(name for name in found if name.startswith("longtail."))


IMPORTS = """
import importlib
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(name, error.name)
"""


def test_what_commands_import_when_they_run_is_there_without_the_extras():
    modules = lazily_imported()
    assert len(modules) > 50 and "longtail.ext.editions.applying" in modules
    done = subprocess.run(
        [sys.executable, "-c", BLOCKER + IMPORTS, *modules], check=True, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.stdout == ""
