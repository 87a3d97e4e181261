"""The tutorial: every block is run, in order, and the answers are those that it shows.

What is typed at a file of the reader's own (`console`), tests/journeys/test_first_hour.py types.
"""

import json
import os
import re
import shlex
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import longtail
from longtail.service.app import create_app
from longtail.service.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
MAX_WAIT_S = 120


class Reader:
    """Someone who types the tutorial's blocks one after the other."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._client: TestClient | None = None
        self.answer: dict[str, Any] = {}

    def type(self, block: str) -> None:
        if block.startswith(("mkdir", "cat")):
            subprocess.run(["bash", "-e", "-c", block], check=True)  # noqa: S607
            return
        for line in block.splitlines():
            words = shlex.split(line)
            {"longtail": self._longtail, "curl": self._curl}[words[0]](words)

    def read(self, shown: dict[str, Any]) -> None:
        """Compare the last answer with the one shown, once the service has the version shown."""
        self.wait_for(shown["model"]["version"])
        assert simplified(self.answer) == simplified(shown)

    def wait_for(self, version: int) -> None:
        """Ask the last question until this version answers it."""
        until = time.monotonic() + MAX_WAIT_S
        while self.answer["model"]["version"] != version:
            assert time.monotonic() < until, self.answer["model"]
            time.sleep(0.05)
            self._curl(self._last)

    def _longtail(self, words: list[str]) -> None:
        if words[1] == "serve":
            self._client = self._stack.enter_context(
                TestClient(create_app(Settings(watch_interval_s=0.05)))
            )
            while self._client.get("/readyz").status_code != 200:
                time.sleep(0.05)
            return
        result = CliRunner().invoke(longtail.app, words[1:])
        assert result.exit_code == 0, (words, result.output, result.exception)

    def _curl(self, words: list[str]) -> None:
        assert self._client is not None
        self._last = words
        route = words[2].removeprefix("localhost:8000")
        response = self._client.post(route, json=json.loads(words[-1]))
        assert response.status_code == 200, response.text
        self.answer = response.json()


def simplified(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without digest and digits, which may differ between processors.

    Of a warning, the code is left, which the page shows.
    """
    (result,) = answer["results"]
    if "warnings" in result:
        codes = [x if isinstance(x, str) else x["code"] for x in result["warnings"]]
        result = {**result, "warnings": codes}
    labels = [(label["id"], sorted(label)) for label in result["labels"]]
    return {
        **answer,
        "model": (answer["model"]["version"], sorted(answer["model"])),
        "results": {**result, "labels": labels},
    }


@pytest.fixture
def reader(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("LONGTAIL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        yield Reader(stack)


def test_every_block_does_what_the_tutorial_says(reader, capsys):
    for language, body in FENCE.findall(PAGE.read_text("utf-8")):
        if language == "sh":
            reader.type(body)
        elif language == "json":
            reader.read(json.loads(body))
        elif language == "python":
            capsys.readouterr()
            exec(compile(body, "tutorial.md", "exec"), {})  # noqa: S102
            assert capsys.readouterr().out == "['birds', 'pets']\n"
    reader.wait_for(1)  # the service has followed the roll-back, and loads nothing any more
