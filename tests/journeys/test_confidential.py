"""A hospital's coder: no name of a patient is in a confidential bundle, nor in any answer."""

import csv
import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from longtail.models.bundle.registry import Registry
from longtail.service.app import create_app
from longtail.service.settings import Settings

FIRST, LAST, STREET = "walburga", "zwiebelkranz", "lerchenfeldweg"
COMMON = "erika"
"""A first name of many patients, which only a list can tell from a word."""
NAMES = (FIRST, LAST, STREET, COMMON)
WORDS = ("fever", "cough", "fracture", "wrist", "ankle", "cyst", "asthma", "rash", "gout", "mumps")
CODES = ("R50", "R05", "S52", "S62", "S82", "E04")
RARE = "Q99.9"
PLAIN = "warmup_texts: 0\nscorers: [sparse, names, ensemble]\nsparse: {max_document_share: 1.0}\n"
CONFIDENTIAL = (
    "confidential: true\nexcluded_words: names.txt\nscorers: [sparse, names, ensemble]\n"
    "sparse: {max_document_share: 1.0}\n"
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Notes of 240 patients, and four of one more patient, who alone has a rare code."""
    monkeypatch.chdir(tmp_path)
    rows = [
        (f"patient {COMMON if n % 3 else 'anna'} has {WORDS[n % 10]} and {WORDS[n * 7 % 10]} {n}",
         CODES[n % 6], f"p{n}")
        for n in range(240)
    ]  # fmt: skip
    extra = ("formerly", "again", "still", "seen")
    rows += [(f"{FIRST.upper()} {LAST}, {STREET} {n}, rileta {extra[n]}", RARE, "x")
             for n in range(4)]  # fmt: skip
    with Path("notes.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "labels", "patient"), *rows])
    Path("names.txt").write_text("Érika\n")  # as nobody writes it
    return tmp_path


def train(run, config: str, registry: str) -> Path:
    Path(f"{registry}.yaml").write_text(config)
    done = run(
        "train", "notes.csv", "--config", f"{registry}.yaml", "--registry", registry,
        "--work", f"work-{registry}", "--group-column", "patient",
    )  # fmt: skip
    assert done.status == 0, done.err
    return Path(registry)


def held_in(bundle, *names):
    """The names that files of a bundle hold, with the files."""
    return {
        (name, path.name)
        for path in bundle.rglob("*")
        if path.is_file()
        for name in names
        if name.encode() in path.read_bytes().lower()
    }


def test_no_name_is_in_a_confidential_bundle_nor_in_an_answer(here, run):
    bundle = train(run, CONFIDENTIAL, "registry") / "1"
    assert not (bundle / "trained_on.safetensors").exists()  # digests of the texts
    assert held_in(bundle, *NAMES, "rileta", "formerly") == set()
    assert {name for name, _ in held_in(train(run, PLAIN, "plain") / "1", *NAMES)} == {*NAMES}
    # A file that is new here: what does it reveal? docs/reference/bundle.md has to say so.
    assert {path.name for path in bundle.iterdir()} <= {
        "manifest.json", "labels.jsonl", "sparse.json", "sparse.safetensors", "names.json",
        "names.jsonl", "names.safetensors", "familiar.json", "trained_on.json",
        "label_counts.json", "label_figures.json",
    }  # fmt: skip
    with TestClient(create_app(Settings(registry=Path("registry"), watch_interval_s=0))) as client:
        while "still loading" in client.get("/readyz").text:
            pass
        found = [client.get("/v1/labels", params={"query": name}).json() for name in (*NAMES, "fe")]
        assert [each["total"] for each in found] == [0] * 5  # "fever" is a word, not a name
        asked = {"text": "fever and cough", "explain": True, "k": 7}
        texts = [client.post("/v1/predict", json=asked).text]
        texts += [client.get("/v1/labels").text, client.get("/v1/models").text]
        texts.append(client.get("/v1/labels", params={"id": RARE}).text)
    assert not any(name in text.lower() for name in NAMES for text in texts)
    why = [each["explanation"] for each in json.loads(texts[0])["results"][0]["labels"]]
    assert why and not any(each["keywords"] for each in why)
    assert "fever" not in run("describe", CODES[0]).out


def test_documents_of_one_group_count_once(here, run):
    """Thirty notes of one patient, all different, make no word of theirs a feature."""
    with Path("notes.csv").open("a") as file:
        file.writelines(f"morbus walpurgis nr{n} n{n},R50,y\n" for n in range(30))
    bundle = train(run, CONFIDENTIAL, "grouped") / "1"
    tokens = json.loads((bundle / "sparse.json").read_text())["tokens"]
    assert "fever" in tokens and not {"morbus", "walpurgis"} & set(tokens)


def test_what_people_say_of_texts_brings_no_names_into_the_model(here, run):
    train(run, CONFIDENTIAL, "registry")
    said = [{"text": f"{FIRST} {LAST} has gout {n}", "accepted": [RARE]} for n in range(20)]
    Path("said.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in said))
    done = run("learn", "notes.csv", "--feedback", "said.jsonl")
    assert done.status == 0, done.err
    assert Registry("registry").versions() == [1, 2]
    assert held_in(Path("registry/2"), *NAMES) == set()
    assert RARE in run("describe", RARE).out and "gout" not in run("describe", RARE).out


def test_nothing_is_quoted_where_documents_are_confidential(here, run):
    with Path("notes.csv").open("a") as file:
        file.write(f"{FIRST},R50\n")  # a cell is missing
        file.write(",R50,p1\n")
    seen = run("inspect", "notes.csv", "--confidential", "--output", "found")
    assert "not quoted" in seen.out
    assert seen.status == 0 and not any(name in seen.out.lower() for name in NAMES)
    written = Path("found/inspection.md").read_text() + Path("found/inspection.json").read_text()
    assert not any(name in written.lower() for name in NAMES)
    Path("notes.csv").write_text("\n".join(Path("notes.csv").read_text().splitlines()[:-2]))
    train(run, CONFIDENTIAL, "registry")
    told = run("report", "notes.csv", "--output", "page.html")
    assert told.status == 0, told.err
    assert not any(name in Path("page.html").read_text().lower() for name in NAMES)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("scorers: [sparse, neighbours]", "neighbours"),
        ("warmup_texts: 16", "warmup_texts"),
        ("sparse: {min_document_count: 2}", "min_document_count"),
        ("descriptions: {num_keywords: 5}", "num_keywords"),
        ("excluded_words: nowhere.txt", "nowhere.txt"),
    ],
)
def test_settings_that_contradict_confidential_are_refused(here, run, line, key):
    Path("c.yaml").write_text(f"confidential: true\n{line}\n")
    done = run("train", "notes.csv", "--config", "c.yaml", "--without-encoder")
    assert done.status == 1 and key in done.last_line
    assert not Registry("registry").versions()
