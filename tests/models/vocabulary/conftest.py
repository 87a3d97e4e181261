"""What the tests of vocabularies share."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from longtail.models.vocabulary import reading


@pytest.fixture(scope="session")
def made_up() -> ModuleType:
    """The module `made_up` beside this file, which is in no package."""
    path = Path(__file__).with_name("made_up.py")
    spec = importlib.util.spec_from_file_location("made_up_vocabularies", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def without_rdflib(monkeypatch) -> None:
    """Fails a test in which the fast readers hand over to rdflib."""

    def refuse(path: Path, *_: object) -> None:
        raise AssertionError(f"handed over: {path}")

    monkeypatch.setattr(reading, "read_with_rdflib", refuse)
