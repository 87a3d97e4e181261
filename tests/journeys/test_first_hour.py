"""A person with a CSV file types what the first page says, and has a service of her own labels."""

import codecs
import csv
import re
import shlex
import socket
from pathlib import Path

import pytest

import longtail
from longtail import demo

ROOT = Path(longtail.__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs" / "tutorial.md"]
FENCE = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = "mine.csv"
TOPICS = {
    "bread": "flour dough yeast oven loaf",
    "bicycles": "wheel pedal chain saddle brake",
    "gardens": "seed soil rose hedge spade",
    "music": "violin chord choir melody drum",
    "sailing": "mast harbour anchor rudder tide",
}


@pytest.fixture
def own_file(tmp_path, monkeypatch):
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
def german_file(own_file):
    """Her file as German Excel writes it: German columns between semicolons, with umlauts."""
    rows = list(csv.reader((own_file / FILE).read_text("utf-8-sig").splitlines()))[1:]
    with (own_file / "my.csv").open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["Nr.", "Titel", "Beschreibung", "Schlagwörter"])
        for number, (text, labels) in enumerate(rows):
            writer.writerow([number, f"Größe {number}", text, labels.replace("gardens", "Gärten")])
    return own_file / "my.csv"


def test_a_file_of_german_excel_is_tagged_by_what_the_readme_says(german_file, run):
    lines = [
        shlex.split(line, comments=True)[1:]
        for block in FENCE.findall(PAGES[0].read_text("utf-8"))
        for line in block.splitlines()
        if german_file.name in line and "--work" not in line  # which trains an encoder
    ]
    assert [words[0] for words in lines] == ["train", "evaluate"]
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
    assert told.count("\n") <= 60 and bars.count("\n") <= 14  # a bar a stage of this training
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
