"""What tests of learning share: feedback on the tiny corpus, as files have it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def write_feedback(tmp_path) -> Callable[..., Path]:
    """Writes lines of feedback to a file."""

    def write(*lines: Mapping[str, Any] | str) -> Path:
        path = tmp_path / "feedback.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        return path

    return write
