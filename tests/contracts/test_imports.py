"""What the shape of the code promises: light imports, layers, docstrings, no code in data."""

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import longtail

ROOT = Path(longtail.__file__).parents[1]
PACKAGES = ("models", "training", "service")
SOURCES = sorted(p for x in ("longtail", *PACKAGES) for p in (ROOT / x).rglob("*.py"))
HEAVY = {"torch", "transformers", "sklearn", "scipy", "fastapi", "faiss", "matplotlib"}
MAX_HELP_MODULES = 400


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the root of the project, as a user would."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def trees():
    """All sources, read once."""
    return {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}


def loaded_by(statement: str) -> list[str]:
    """Return the modules that a fresh interpreter has loaded after a statement."""
    run = python("-c", f"{statement}\nimport sys\nprint(*sys.modules)")
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()[-1].split()


def packages(modules: list[str]) -> set[str]:
    return {name.split(".")[0] for name in modules}


SCRIPTS = [*(ROOT / "tests/bench").rglob("*.py"), *(ROOT / "docs").rglob("*.py")]
"""They are run by hand, long after a name may have changed."""


def test_the_names_that_scripts_import_are_there():
    imported = {
        (statement.module, alias.name, name_of(path))
        for path in SCRIPTS
        for statement in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(statement, ast.ImportFrom) and str(statement.module).startswith("longtail.")
        for alias in statement.names
    }
    assert len(imported) > 150
    missing = [each for each in sorted(imported) if not is_there(*each[:2])]
    assert not missing


def is_there(module: str, name: str) -> bool:
    if importlib.util.find_spec(module) is None:
        return False
    if hasattr(importlib.import_module(module), name):
        return True
    return importlib.util.find_spec(f"{module}.{name}") is not None


LIBRARIES = {"torch", "transformers", "sklearn", "faiss", "matplotlib", "pandas"}


@pytest.mark.parametrize("module", ["longtail.service.app", "longtail.models.predict.predictor"])
def test_without_an_encoder_to_load_the_service_loads_no_library_of_the_dense_half(module):
    assert packages(loaded_by(f"import {module}")) & LIBRARIES == set()


def test_help_costs_little():
    """Modules are counted, not seconds, which others on the machine change."""
    run_help = (
        "import contextlib, sys, longtail\nsys.argv[1:] = ['--help']\n"
        "with contextlib.suppress(SystemExit):\n    longtail.main()"
    )
    loaded = loaded_by(run_help)
    assert packages(loaded) & (HEAVY | {"numpy", "pydantic", "yaml"}) == set()
    assert "typer" in loaded and len(loaded) < MAX_HELP_MODULES


# Whatever turns data into running code.
CODE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
CODE_CALLS = {"eval", "exec", "compile", "__import__"}
CODE_METHODS = {
    "torch.load", "joblib.load", "np.load", "numpy.load", "yaml.load", "faiss.read_index",
}  # fmt: skip


def dangers_in(tree: ast.AST) -> Iterator[str]:
    """Yield what in a module could run code that comes with data."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (x.name for x in node.names if x.name.split(".")[0] in CODE_MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module.split(".")[0] in CODE_MODULES:
                yield node.module
            yield from (
                f"{node.module}.{x.name}"
                for x in node.names
                if f"{node.module}.{x.name}" in CODE_METHODS
            )
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in CODE_CALLS | CODE_METHODS:
                yield called
            yield from (
                f"{called}({x.arg}=...)"
                for x in node.keywords
                if x.arg in ("trust_remote_code", "allow_pickle", "shell")
                and ast.unparse(x.value) != "False"
            )


def test_nothing_runs_code_that_comes_with_data(trees):
    found = {name: list(dangers_in(tree)) for name, tree in trees.items()}
    assert {name: dangers for name, dangers in found.items() if dangers} == {}


def test_importing_configures_no_logging_and_sets_no_variable():
    run = python(
        "-c",
        "import logging, os\nbefore = {x for x in os.environ if x.startswith('LONGTAIL_')}\n"
        "import longtail.service.app, longtail.service.engine.engine\n"
        "import longtail.training.pipeline.train\n"
        "after = {x for x in os.environ if x.startswith('LONGTAIL_')}\n"
        "print(logging.getLogger().handlers, after - before)",
    )
    assert run.stdout == "[] set()\n", run.stderr
