"""The demo, on the tiny corpus: two versions of one service, and not a request that failed."""

import re
import socket

import pytest

from longtail import demo


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
        return number


def test_the_demo_tells_its_story_in_at_most_60_lines(
    tiny_corpus, tiny_config_file, tmp_path, port, monkeypatch, capfd
):
    monkeypatch.setattr(demo, "is_packaged_installed", lambda: True)
    demo.demo(
        tiny_corpus, tmp_path / "registry", tmp_path / "work", port,
        keeps_serving=False, config=tiny_config_file,
    )  # fmt: skip
    told, bars = capfd.readouterr()
    assert told.count("\n") + bars.count("\n") <= 70
    found = re.search(
        r"answered [\d,]+ requests \(([\d,]+) by version 1, ([\d,]+) by version 2\)", told
    )
    assert found and "; 0 failed" in told
    assert "| scorer " in told.split("3. How good")[1].split("4. Read")[0]
    assert "Version 2, measured as version 1:" in told
    assert "20 answers to 20 texts" in told and f"http://127.0.0.1:{port}/" in told
    assert "retrieval: 100%" in bars
    assert " INFO " in (tmp_path / "work" / "demo.log").read_text() and " INFO " not in bars
    assert {x.name for x in (tmp_path / "work").glob("evaluation-*")} == {
        "evaluation-1",
        "evaluation-2",
    }
