"""Every command runs in an environment of the wheel without extras, or names the extra it needs."""

import json
import os
import shutil
import socket
import subprocess
import sys
import venv
from pathlib import Path
from typing import NamedTuple

import pytest

from longtail.models.extras import PACKAGES
from tests.contracts.test_wheel import SERVE

pytestmark = pytest.mark.slow  # packages are installed

CONSTRAINTS = Path(__file__).parents[2] / "docker/constraints.txt"
TEXT = "imports of olive oil"
UNKNOWN = "0123456789abcdef0123456789abcdef"


class Line(NamedTuple):
    """A command line; what its last message says where its status is 1."""

    words: str
    says: str = ""


def extra(name: str) -> str:
    """Return the command that a message names to install an extra."""
    return f'pip install "longtail[{name}]"'


ONCE = {
    "inspect": [Line("data --output inspection"), Line("docs.parquet", extra("parquet"))],
    "train": [Line("data"), Line("data --engine ray --work ray", extra("ray"))],
    "evaluate": [Line("data --output evaluation --predictions")],
    "report": [Line("data --output report.html")],
    "compare": [Line("{0}/ensemble.npz {0}/sparse.npz data".format("evaluation/predictions"))],
    "predict": [
        Line("--input texts.txt --output labels.jsonl"),
        Line("--input docs.parquet --output labels.parquet", extra("parquet")),
    ],
    "threshold": [Line("data --recall 0.01 --bands all")],
    "registry add-label": [Line("new pump --data data --version 1 --force")],
    "describe": [Line("new --version 3")],
    "vocabulary diff": [Line("registry vocabulary.jsonl")],
    "vocabulary apply": [Line("vocabulary.jsonl --version 1 --force")],
    "vocabulary gaps": [Line("data --min-documents 1")],
    "vocabulary show": [
        Line("concepts.csv --output concepts.jsonl"),
        Line("concepts.ttl", extra("skos")),
    ],
    "learn": [Line("data --feedback feedback.jsonl")],
    "promote": [Line("--candidate 3 --data data", "expected at least 30; name another split")],
    "registry list": [Line("")],
    "registry show": [Line("")],
    "registry verify": [Line("")],
    "registry activate": [Line("1")],
    "registry rollback": [Line("")],
    "registry remove": [Line("2")],
    "key": [Line("me")],
    "push": [Line("pushed"), Line("hf://owner/name", extra("sharing"))],
    "pull": [Line("pushed --registry pulled"), Line("hf://owner/name", extra("sharing"))],
    "feedback import": [Line("feedback.jsonl --feedback kept --registry registry")],
    "feedback export": [Line("exported.jsonl --feedback kept")],
    "feedback delete": [Line(f"{UNKNOWN} --feedback kept", "no feedback with the id")],
    "mcp": [Line("", extra("mcp"))],
    "demo": [Line("--no-serve --registry demo --work demo-work --port PORT")],
    "serve": [Line("")],  # by `SERVE`
}
"""The lines of each command, in the order in which they are run."""
COMMANDS = """
import typer.main, longtail
def walk(group, words=()):
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            walk(each, (*words, name))
        else:
            print(*words, name)
walk(typer.main.get_command(longtail.app))
"""


@pytest.fixture(scope="module")
def run(wheel, tmp_path_factory):
    """Run Python in a folder with data, in an environment of the wheel and what it depends on."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith("LONGTAIL_")
    }
    bare, folder = (tmp_path_factory.mktemp(name) for name in ("bare", "work"))
    venv.create(bare, symlinks=os.name != "nt")
    python = bare / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    command += ["--disable-pip-version-check", "--constraint", str(CONSTRAINTS), str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr

    def run_it(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, *words], cwd=folder, env=environment, capture_output=True, text=True,
            check=False, timeout=600,
        )  # fmt: skip

    run_it.folder = folder
    return run_it


@pytest.fixture(scope="module")
def data(run, tiny_corpus):
    """Write all that the commands read."""
    shutil.copytree(tiny_corpus, run.folder / "data")
    labels = (tiny_corpus / "labels.jsonl").read_text("utf-8").splitlines()
    renamed = labels[0].replace('"name": "', '"name": "new ')
    said = {"text": TEXT, "accepted": [json.loads(labels[1])["id"]]}
    for name, content in {
        "vocabulary.jsonl": "\n".join([renamed, *labels[1:-1]]),
        "feedback.jsonl": json.dumps(said),
        "texts.txt": TEXT,
        "concepts.csv": "uri,label_en\nhttp://a.example/oil,olive oil\n",
        "concepts.ttl": "",
        "docs.parquet": "PAR1",
    }.items():
        (run.folder / name).write_text(content, "utf-8")
    (run.folder / "folder").mkdir()


def test_it_has_no_package_of_an_extra(run):
    modules = {module.split(".")[0] for each in PACKAGES.values() for module in each}
    code = "import sys, importlib.util as u; print(*[x for x in sys.argv[1:] if u.find_spec(x)])"
    assert set(run("-c", code, *sorted(modules)).stdout.split()) <= {"opentelemetry"}


def test_each_command_works_or_names_its_extra(run, data):
    assert sorted(run("-c", COMMANDS).stdout.splitlines()) == sorted(ONCE)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    wrong = []
    for command, lines in ONCE.items():
        for words, says in lines:
            line = ("-m", "longtail", *command.split(), *words.replace("PORT", port).split())
            done = run("-c", SERVE, TEXT) if command == "serve" else run(*line)
            last = done.stderr.strip().splitlines()[-1:] or [""]
            is_silent = command == "serve" and not done.stdout.strip()  # else ids of labels
            if done.returncode != bool(says) or says not in last[0] or is_silent:
                wrong.append(f"{command} {words}: {done.returncode}\n{done.stderr[-800:]}")
    assert not wrong, "\n\n".join(wrong)
