"""What the README files tell people to type works, and what they point to is there."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterable
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import longtail
from longtail.service.app import create_app
from longtail.service.settings import Settings

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
MAP = DOCS / "explanation" / "code-map.md"
OTHERS = [
    ROOT / "docker" / "README.md",
    ROOT / "service" / "OPERATIONS.md",
    ROOT / "CONTRIBUTING.md",
]
PAGES = [README, *OTHERS, *sorted(DOCS.rglob("*.md"))]
MAX_READ_WORDS = 26_900
"""Most words of the pages but results and decisions, of which one is looked up at a time."""
MAX_ALL_WORDS = 39_700
"""Most words of all pages."""
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, language: str) -> list[str]:
    return [body for name, body in FENCE.findall(path.read_text("utf-8")) if name == language]


def commands(path: Path) -> list[list[str]]:
    """Return the words of each command: a quoted text may run over several lines."""
    found, open_lines = [], ""
    for line in "".join(blocks(path, "sh")).replace("\\\n", " ").splitlines(keepends=True):
        open_lines += line
        with contextlib.suppress(ValueError):
            found.append(shlex.split(open_lines, comments=True))
            open_lines = ""
    assert not open_lines, f"{name_of(path)}: no end of {open_lines!r}"
    parts = (part for words in found for part in groupby(words, "&&".__ne__))
    return [list(words) for is_command, words in parts if is_command]


@pytest.fixture
def client(trained):
    with TestClient(create_app(Settings(registry=trained.registry.folder))) as client:
        while client.get("/readyz").status_code != 200:
            pass
        yield client


def test_the_python_block_prints_three_labels(trained, monkeypatch, capsys):
    (code,) = blocks(README, "python")
    monkeypatch.chdir(trained.registry.folder.parent)
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_the_curl_command_gets_an_answer_of_the_shape_shown(client):
    (curl,) = [words for words in commands(README) if words[0] == "curl"]
    answer = client.post(curl[2].split("localhost:8000")[1], json=json.loads(curl[-1]))
    (shown,) = blocks(README, "json")
    assert answer.status_code == 200
    found = answer.json()
    found["results"][0].pop("warnings", None)  # that few words of the text are known here
    assert shape_of(found) == shape_of(json.loads(shown))


def test_every_longtail_command_and_option_exists():
    def unknown(path: Path) -> list[str]:
        used = [words for words in commands(path) if words[0] == "longtail"]
        return [
            f"{words}: {word}"
            for words in used
            for word in ["Usage", *words]
            if (word == "Usage" or word.startswith("--")) and word not in help_of(words)
        ]

    assert wrong_pages(unknown) == {}


def test_every_link_to_a_file_leads_to_one():
    def broken(path: Path) -> list[str]:
        links = re.findall(r"\]\((?!https?:)([^)#]+)\)", path.read_text("utf-8"))
        return [link for link in links if not (path.parent / link).exists()]

    assert wrong_pages(broken) == {}


def test_every_file_that_is_named_is_there():
    def missing(path: Path) -> list[str]:
        text = path.read_text("utf-8")
        named = re.findall(r"`((?:models|training|service|tests|docker)/[\w/.-]+\.\w+)`", text)
        return sorted({name for name in named if not (ROOT / name).exists()})

    assert wrong_pages(missing) == {}


@pytest.mark.parametrize("package", ["models", "training", "service"])
def test_every_folder_stands_in_the_map_of_the_code(package):
    text, path = MAP.read_text("utf-8"), ROOT / package
    folders = {f"{file.parent.name}/" for file in path.glob("*/__init__.py")}
    files = {file.name for file in path.glob("*.py")} - {"__init__.py"}
    assert sorted(name for name in folders | files if f"`{name}`" not in text) == []


def test_the_documents_can_be_read_in_an_afternoon():
    assert num_words([README]) <= 800
    pages = [path for path in PAGES if path.parent.name not in ("results", "decisions")]
    assert num_words(pages) <= MAX_READ_WORDS
    assert num_words(PAGES) <= MAX_ALL_WORDS


def wrong_pages(find: Callable[[Path], Collection[str]]) -> dict[str, list[str]]:
    """Return what is wrong with each page, without the pages where nothing is."""
    return {name_of(path): sorted(wrong) for path in PAGES if (wrong := find(path))}


def num_words(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text("utf-8").split()) for path in paths)


def help_of(words: list[str]) -> str:
    return _help(tuple(subcommands(words)))


@cache
def _help(words: tuple[str, ...]) -> str:
    wide = {"COLUMNS": "200"}  # on 80, long names of options are cut
    return CliRunner().invoke(longtail.app, [*words, "--help"], env=wide).output


def subcommands(words: list[str]) -> list[str]:
    groups = [group.name for group in longtail.app.registered_groups]
    return words[1:3] if words[1] in groups else words[1:2]


def shape_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shape_of(item) for key, item in value.items()}
    return [shape_of(value[0])] if isinstance(value, list) and value else type(value).__name__
