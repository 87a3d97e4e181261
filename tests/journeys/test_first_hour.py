"""A person with a CSV file types what the first page says, and has a service of her own labels."""

from __future__ import annotations

import codecs
import csv
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import longtail

ROOT = Path(longtail.__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs" / "tutorial.md"]
FENCE = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = "mine.csv"
MAX_WAIT_S = 300
TOPICS = {
    "bread": "flour dough yeast oven loaf",
    "bicycles": "wheel pedal chain saddle brake",
    "gardens": "seed soil rose hedge spade",
    "music": "violin chord choir melody drum",
    "sailing": "mast harbour anchor rudder tide",
}


def typed_lines(page: Path) -> list[str]:
    """Return what a page says to type about one's own file, with the question that follows."""
    lines: list[str] = []
    for block in FENCE.findall(page.read_text("utf-8")):
        if FILE in block or (lines and "curl" in block and not lines[-1].startswith("curl")):
            lines += [line.removeprefix("$ ") for line in block.splitlines()]
    return lines


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Her file in an empty folder: 300 rows of one or two topics, as a spreadsheet writes them."""
    here = tmp_path / "hers"
    here.mkdir()
    names = list(TOPICS)
    rows = ["text,labels"]
    for number in range(300):
        first, second = names[number % 5], names[number // 5 % 5]
        words = [
            TOPICS[name].split()[(number // 3 + x) % 5]
            for x in range(3)
            for name in (first, second)
        ]
        labels = ";".join(dict.fromkeys([first, second]))
        rows.append(f'"Note {number}: {" ".join(words)}, and more",{labels}')
    (here / FILE).write_bytes(("\ufeff" + "\r\n".join(rows) + "\r\n").encode())
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Her terminals: the command is there, and a port is free."""
    command = tmp_path / "bin" / "longtail"
    command.parent.mkdir()
    words = shlex.join([sys.executable, "-m", "longtail"])
    command.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    command.chmod(0o755)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
    monkeypatch.setenv("PATH", os.pathsep.join([str(command.parent), os.environ["PATH"]]))
    monkeypatch.setenv("LONGTAIL_PORT", str(number))
    monkeypatch.setenv("LONGTAIL_DRAIN_DELAY_S", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return number


@pytest.mark.usefixtures("own_file")
def test_typing_it_ends_with_an_answer_over_http(port: int) -> None:
    lines = next(lines for page in PAGES if (lines := typed_lines(page)))
    *commands, serve = [line for line in lines if line.startswith("longtail")]
    for line in commands:
        seen = typed(line)
        assert seen.returncode == 0, (line, seen.stderr)
        assert "Traceback" not in seen.stderr
    (curl,) = [line for line in lines if line.startswith("curl")]
    with serving(serve, port):
        words = shlex.split(curl)
        body = json.loads(words[-1]) | {"text": "A violin, a chord and a melody"}
        url = f"http://{words[2].replace(':8000', f':{port}')}"
        response = httpx.post(url, json=body, timeout=MAX_WAIT_S)
    assert response.status_code == 200, response.text
    found = [label["id"] for label in response.json()["results"][0]["labels"]]
    assert found[0] == "music"
    assert len(found) == body["k"]


@pytest.fixture
def german_file(own_file: Path) -> Path:
    """Her file as German Excel writes it: German columns between semicolons, with umlauts."""
    rows = list(csv.reader((own_file / FILE).read_text("utf-8-sig").splitlines()))[1:]
    with (own_file / "my.csv").open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["Nr.", "Titel", "Beschreibung", "Schlagwörter"])
        for number, (text, labels) in enumerate(rows):
            writer.writerow([number, f"Größe {number}", text, labels.replace("gardens", "Gärten")])
    return own_file / "my.csv"


def test_a_file_of_german_excel_is_tagged_by_what_the_readme_says(german_file: Path, run) -> None:
    lines = [
        shlex.split(line, comments=True)[1:]
        for block in FENCE.findall(PAGES[0].read_text("utf-8"))
        for line in block.splitlines()
        if german_file.name in line and "--work" not in line  # which trains an encoder
    ]
    assert [words[0] for words in lines] == ["inspect", "train", "evaluate"]
    for words in [*lines, ["predict", "--input", german_file.name, "--output", "tagged.csv"]]:
        seen = run(*words)
        assert seen.status == 0, (words, seen.err)
    before = list(csv.reader(german_file.read_text("utf-8-sig").splitlines(), delimiter=";"))
    tagged = Path("tagged.csv").read_bytes()
    assert tagged.startswith(codecs.BOM_UTF8) and tagged.count(b"\r\n") == len(before)
    after = list(csv.reader(tagged.decode("utf-8-sig").splitlines(), delimiter=";"))
    assert [row[:4] for row in after] == before
    assert after[0][4] == "labels" and all("Gärten" in row[4] for row in after[3:100:5])

    german_file.write_bytes(german_file.read_text("utf-8-sig").encode("cp1252"))
    for words in [lines[0], ["predict", "--input", german_file.name, "--output", "other.csv"]]:
        refused = run(*words)
        assert refused.status == 1 and "'iconv -f cp1252 -t utf-8'" in refused.last_line


def typed(line: str) -> subprocess.CompletedProcess[str]:
    """Return how a line at a shell ended."""
    return subprocess.run(["/bin/bash", "-c", line], capture_output=True, text=True, check=False)


@contextmanager
def serving(line: str, port: int) -> Iterator[None]:
    """Let a line run in another terminal while the service answers."""
    with Path("service.log").open("w") as log:
        process = subprocess.Popen(["/bin/bash", "-c", f"exec {line}"], stderr=log)
    try:
        until = time.monotonic() + MAX_WAIT_S
        while not is_ready(port):
            assert process.poll() is None and time.monotonic() < until, Path(
                "service.log"
            ).read_text()
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()


def is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=MAX_WAIT_S).status_code == 200
    except httpx.TransportError:
        return False
