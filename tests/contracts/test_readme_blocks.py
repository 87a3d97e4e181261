"""What the README files tell people to type works, and what they point to is there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import longtail
from service.app import create_app
from service.settings import Settings

ROOT = Path(__file__).parents[2]
READMES = [ROOT / "README.md", *(ROOT / x / "README.md" for x in ("models", "training", "service"))]
PAGES = [*READMES, *sorted((ROOT / "docs").rglob("*.md"))]
MOST_WORDS = 6000
"""Of all READMEs together: what is longer belongs into `docs/`."""
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, language: str) -> list[str]:
    return [body for name, body in FENCE.findall(path.read_text("utf-8")) if name == language]


def commands(path: Path) -> list[list[str]]:
    lines = "".join(blocks(path, "sh")).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.fixture
def client(trained):
    with TestClient(create_app(Settings(registry=trained.registry.folder))) as client:
        while client.get("/readyz").status_code != 200:
            pass
        yield client


def test_the_python_block_prints_three_labels(trained, monkeypatch, capsys):
    (code,) = blocks(ROOT / "README.md", "python")
    monkeypatch.chdir(trained.registry.folder.parent)
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_the_python_block_is_at_most_eight_lines():
    (code,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 8


@pytest.mark.parametrize("path", [READMES[0], READMES[3]], ids=["main", "service"])
def test_the_curl_command_gets_an_answer_of_the_shape_shown(path, client):
    (curl,) = [words for words in commands(path) if words[0] == "curl"]
    answer = client.post(curl[2].split("localhost:8000")[1], json=json.loads(curl[-1]))
    (shown,) = blocks(path, "json")
    assert answer.status_code == 200
    assert shape_of(answer.json()) == shape_of(json.loads(shown))


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_longtail_command_and_option_exists(path):
    for words in commands(path):
        if words[0] == "longtail":
            help_text = CliRunner().invoke(longtail.app, [*subcommands(words), "--help"]).output
            options = [word for word in words if word.startswith("--")]
            assert "Usage" in help_text
            assert [option for option in options if option not in help_text] == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_make_target_exists(path):
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert {words[1] for words in commands(path) if words[0] == "make"} <= targets


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_link_to_a_file_leads_to_one(path):
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", path.read_text("utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_file_that_is_named_is_there(path):
    text = path.read_text("utf-8")
    named = re.findall(r"`((?:models|training|service|tests|docker)/[\w/.-]+\.\w+)`", text)
    assert sorted({name for name in named if not (ROOT / name).exists()}) == []


@pytest.mark.parametrize("path", READMES[1:], ids=name_of)
def test_every_folder_stands_in_the_readme_of_its_package(path):
    text = path.read_text("utf-8")
    folders = {f"{file.parent.name}/" for file in path.parent.glob("*/__init__.py")}
    files = {file.name for file in path.parent.glob("*.py")} - {"__init__.py"}
    assert sorted(name for name in folders | files if f"`{name}`" not in text) == []


def test_every_page_stands_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    pages = (str(path.relative_to(ROOT / "docs")) for path in PAGES[len(READMES) :])
    assert [page for page in pages if page != "index.md" and f"({page})" not in index] == []


def test_the_readmes_are_short():
    paths = [path for path in ROOT.glob("*/README.md") if path.parent.name != ".venv"]
    words = [len(path.read_text("utf-8").split()) for path in [ROOT / "README.md", *paths]]
    assert sum(words) <= MOST_WORDS
    assert len(READMES[0].read_text("utf-8").splitlines()) <= 150


def subcommands(words: list[str]) -> list[str]:
    found = words[1:2]
    return [*found, words[2]] if found[0] in ("registry", "experiment") else found


def shape_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shape_of(item) for key, item in value.items()}
    return [shape_of(value[0])] if isinstance(value, list) and value else type(value).__name__
