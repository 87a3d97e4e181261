"""The page about a scorer of your own: its package is written down, trained, measured and asked."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "own-scorer.md"
pytestmark = pytest.mark.slow  # three processes that import everything


@pytest.fixture
def blocks():
    found = re.findall(r"^```(\w+)\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    return dict(found)


@pytest.fixture
def longtail(blocks, tmp_path, monkeypatch):
    """The command, where the package of the page is installed, in a folder with its files."""
    site = tmp_path / "site"
    (site / "my_scorer-1.0.dist-info").mkdir(parents=True)
    (site / "my_scorer.py").write_text(blocks["python"], "utf-8")
    header, point = blocks["toml"].splitlines()
    assert header == '[project.entry-points."longtail.extensions"]'
    name, module = (part.strip(' "') for part in point.split("="))
    info = site / "my_scorer-1.0.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_scorer\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[longtail.extensions]\n{name} = {module}\n")
    (tmp_path / "my.yaml").write_text(f"{blocks['yaml']}sparse: {{min_document_count: 1}}\n")
    monkeypatch.chdir(tmp_path)

    def run(*words, paths=(site, ROOT)):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
        command = [sys.executable, "-m", "longtail", *map(str, words)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    return run


def test_the_package_of_the_page_is_trained_measured_and_asked(longtail, tiny_corpus):
    for words in (
        ("train", tiny_corpus, "--config", "my.yaml"),
        ("evaluate", tiny_corpus, "--json", "measured.json"),
    ):
        done = longtail(*words)
        assert done.returncode == 0, done.stderr
    measured = json.loads(Path("measured.json").read_text("utf-8"))
    assert measured["figures"]["scorers"]["centroids"]["all"]["values"]["P@1"] > 0.2
    Path("in.txt").write_text("imports of olive oil\nzzz\n", "utf-8")
    ask = ("predict", "--input", "in.txt", "--output", "out.jsonl", "--scorer", "centroids")
    done = longtail(*ask)
    assert done.returncode == 0, done.stderr
    known, unknown = map(json.loads, Path("out.jsonl").read_text("utf-8").splitlines())
    assert known["labels"] and unknown["labels"] == []
    refused = longtail(*ask, "--overwrite", paths=[ROOT])
    assert refused.returncode == 1 and "import the package" in refused.stderr
