"""Tables of results say what the committed figures say."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


@pytest.fixture(scope="module")
def soak_report() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "soak_report", ROOT / "tests" / "bench" / "soak_report.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_the_soak_is_that_of_its_figures(soak_report: ModuleType) -> None:
    found = json.loads((RESULTS / "soak.json").read_text(encoding="utf-8"))
    assert soak_report.render(found) == (RESULTS / "soak.md").read_text(encoding="utf-8")


def test_the_soak_lasted_an_hour_under_all_faults(soak_report: ModuleType) -> None:
    found = json.loads((RESULTS / "soak.json").read_text(encoding="utf-8"))
    assert found["seconds"] >= 3600
    assert {"compute threads killed", "jumps of the clock", "full disks"} == set(found["faults"])
