"""Tables of the documents say what the committed records of measurements say."""

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from longtail.models.processor import FLAGS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
RECORDS = sorted(RESULTS.rglob("*.json"))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


render = load("render")
from docs.generation import leaderboard_page  # noqa: E402 - render finds them
from docs.generation.claims import sources  # noqa: E402


def name_of(path: Path) -> str:
    return str(path.relative_to(RESULTS)) if path.is_relative_to(RESULTS) else path.name


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("path", render.pages(), ids=name_of)
def test_the_tables_of_a_page_are_those_of_the_records(path):
    text = path.read_text(encoding="utf-8")
    assert render.render_page(text) == text, "stale: run 'python docs/render.py'"


OURS = ("longtail ", "python ", "OMP_NUM_THREADS=", "time make")


def faults_of(path: Path, record: dict[str, Any]) -> Iterator[str]:
    """Yield what a record does not say of how it was measured."""
    if record.keys() - {"transcribed", "note"} != render.KEYS:
        yield "keys"
        return
    # Rows of the leaderboard may be made by any program.
    if (
        not record["command"].startswith(OURS if path.parent == RESULTS else "")
        or not record["command"]
    ):
        yield "command"
    if record["date"] is not None and not is_date(record["date"]):
        yield "date"
    processor = record["processor"] or {"model": "", "flags": (), "cores": 0}
    if processor.keys() != {"model", "flags", "cores"} or set(processor["flags"]) - set(FLAGS):
        yield "processor"
    if not (record.get("transcribed", False) or record["commit"]):
        yield "commit, and it was not transcribed"


def is_date(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def test_a_record_says_how_it_was_measured():
    found = {name_of(path): list(faults_of(path, read(path))) for path in RECORDS}
    assert found and {name: faults for name, faults in found.items() if faults} == {}


def test_every_record_stands_in_a_page_or_is_linked():
    text = "".join(page.read_text("utf-8") for page in render.pages())
    directives = re.findall(r"<!-- table: (.+?) -->", text)
    claimed = sources(RESULTS)

    def asked(path: Path) -> str:
        if path.parent != RESULTS:
            return str(path.parent.relative_to(RESULTS))
        return "claims" if path.name in claimed else path.name

    used = {part.split()[0] for each in directives for part in each.split(" + ")}
    used |= {*re.findall(r"\]\(([\w-]+\.json)\)", text)}
    assert [name_of(x) for x in RECORDS if asked(x) not in used] == []


def test_the_leaderboard_that_sorts_is_that_of_the_records():
    made = leaderboard_page.page(RESULTS / "leaderboard")
    assert render.BOARD.read_text("utf-8") == made, "stale: run 'python docs/render.py'"
    assert not re.search(r"(src|href)=\"https?:", made)
