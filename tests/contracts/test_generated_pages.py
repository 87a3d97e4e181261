"""The reference pages that are generated from the code say what the code says now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_page_is_stale(generate: ModuleType) -> None:
    assert generate.stale_pages(write=False) == [], "run python docs/generate.py"


def test_a_page_that_was_changed_by_hand_is_found_and_written_anew(
    generate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "REFERENCE", tmp_path)
    monkeypatch.setattr(generate, "PAGES", {"settings.md": generate.PAGES["settings.md"]})
    page = tmp_path / "settings.md"
    page.write_text("by hand", encoding="utf-8")
    assert generate.stale_pages(write=False) == ["settings.md"]
    assert page.read_text(encoding="utf-8") == "by hand"
    generate.stale_pages(write=True)
    assert generate.stale_pages(write=False) == []
    assert "`LONGTAIL_MAX_K`" in page.read_text(encoding="utf-8")
