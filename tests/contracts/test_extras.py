"""Without the extras a model without an encoder is trained, measured, served and corrected."""

import ast
import json
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
from longtail.models.bundle.registry import Registry
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
JOURNEY = """
import sys, time
from pathlib import Path
from fastapi.testclient import TestClient
import longtail
from longtail.service.app import create_app
from longtail.service.settings import Settings

corpus, encoder_registry = sys.argv[1:]
text = "imports of olive oil"

def command(*words):
    return longtail.app(words, standalone_mode=False)

command("inspect", corpus, "--output", "inspection")
command("train", corpus)
command("evaluate", corpus, "--output", "evaluation")
command("report", corpus, "--output", "report.html")
Path("texts.txt").write_text(text, "utf-8")
command("predict", "--input", "texts.txt", "--output", "labels.jsonl")
model = longtail.load()
assert "longtail.training.estimators.model" not in sys.modules
best = model.predict(text, k=1).labels[0]
with TestClient(create_app(Settings(registry=Path("registry"), watch_interval_s=0))) as client:
    while (answer := client.post("/v1/predict", json={"text": text, "k": 1})).status_code == 503:
        time.sleep(0.05)
assert answer.json()["results"][0]["labels"][0]["id"] == best.id
Path("feedback.jsonl").write_text('{"text": "%s", "rejected": ["%s"]}' % (text, best.id), "utf-8")
assert longtail.learn("feedback.jsonl", corpus) == 2
classifier = longtail.LongtailClassifier(config={"scorers": ["sparse"]})
texts = ["olive oil", "fresh fish", "oil of olives", "fish of the sea"] * 5
classifier.fit(texts, [["oil"], ["fish"]] * 10).predict(texts[:1])
for refused in (
    lambda: longtail.train(corpus, scorers=["retrieval", "sparse"], work="runs/dense"),
    lambda: longtail.load(encoder_registry),
):
    try:
        refused()
    except longtail.LongtailError as error:
        assert 'pip install "longtail[cpu]"' in str(error), error
    else:
        raise AssertionError("an encoder without PyTorch")
"""


@pytest.mark.slow
def test_all_but_an_encoder_works_without_the_extras(tmp_path, tiny_corpus, trained):
    arguments = [str(tiny_corpus), str(trained.registry.folder)]
    done = subprocess.run(
        [sys.executable, "-c", BLOCKER + JOURNEY, *arguments], cwd=tmp_path, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert sum("training without an encoder" in line for line in said) == 1
    assert sum("no pictures" in line for line in said) == 3  # inspect, evaluate, report
    assert {path.name for path in (tmp_path / "evaluation").iterdir()} == {
        "evaluation.json", "evaluation.md",
    }  # fmt: skip
    assert json.loads((tmp_path / "labels.jsonl").read_text("utf-8"))["labels"]
    assert "retrieval" not in Registry(tmp_path / "registry").open(1).manifest.scorers


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
