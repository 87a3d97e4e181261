"""What the guides for operators point to is there, and so are the commands that they name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import longtail

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "service" / "OPERATIONS.md", ROOT / "docker" / "README.md"]
guides = pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.parent.name)


def anchors_of(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@guides
def test_every_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", path.read_text("utf-8"))
    targets = [((path.parent / file) if file else path, anchor) for file, anchor in links]
    assert targets and [str(file) for file, _ in targets if not file.exists()] == []
    assert [anchor for file, anchor in targets if anchor and anchor not in anchors_of(file)] == []


@guides
def test_every_path_in_the_repository_is_one(path: Path) -> None:
    named = re.findall(r"(?:docker|tests|service)/[\w./-]*\w", path.read_text("utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


@guides
def test_every_longtail_command_is_there(path: Path) -> None:
    named = set(re.findall(r"longtail ((?:registry )?[a-z-]+)(?= )", path.read_text("utf-8")))
    for words in (name.split() for name in named - {"service", "training"}):
        result = CliRunner().invoke(longtail.app, [*words, "--help"])
        assert result.exit_code == 0, f"longtail {' '.join(words)}"


def test_each_setting_that_is_named_is_one(setting_variables: set[str]) -> None:
    text = "".join(path.read_text("utf-8") for path in GUIDES)
    assert set(re.findall(r"`(LONGTAIL_[A-Z_]+[A-Z])\b", text)) <= setting_variables
