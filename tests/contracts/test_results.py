"""Tables of the documents say what the committed records of measurements say."""

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from docs import render
from docs.generation import leaderboard, leaderboard_page
from docs.generation.claims import sources

RESULTS = render.RESULTS
BOARD = RESULTS / leaderboard.FILE
RECORDS = [path for path in sorted(RESULTS.glob("*.json")) if path != BOARD]


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("path", render.pages(), ids=lambda path: path.name)
def test_the_tables_of_a_page_are_those_of_the_records(path):
    assert render.render_page(path) == path.read_text("utf-8"), "run 'python docs/render.py'"


def test_a_record_says_how_it_was_measured():
    rows = read(BOARD)["rows"]
    assert len(rows) > 40
    for record in [*map(read, RECORDS), *rows]:
        assert record.keys() - {"transcribed", "note", "set"} == render.KEYS
        assert record["command"]
        assert record["commit"] or record["transcribed"]
        assert record["date"] is None or date.fromisoformat(record["date"])


def test_every_record_stands_in_a_page_or_is_linked():
    text = "".join(path.read_text("utf-8") for path in (render.ROOT / "docs").rglob("*.md"))
    used = {*re.findall(r"([\w-]+\.json)\)", text), *sources(RESULTS)}
    used |= set(re.findall(r"([\w-]+\.json)", " ".join(re.findall(r"<!-- table: .+? -->", text))))
    assert [path.name for path in RECORDS if path.name not in used] == []


def test_the_leaderboard_that_sorts_is_that_of_the_records():
    assert render.BOARD.read_text("utf-8") == leaderboard_page.page(BOARD)
