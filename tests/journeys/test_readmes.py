"""What the pages say, in their order, from an empty folder: every step works and says so."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from longtail.models.bundle.registry import Registry

RANKED = "runs/evaluation/predictions"
# Of the README and the pages, with a small corpus.
STEPS = [
    ("train data --config sparse --work runs/mine", "Version 1 of 'registry' is trained"),
    ("train data --config sparse --work runs/mine", "Version 1 of 'registry' is trained"),  # again
    ("evaluate data --output runs/mine/evaluation", "Written: runs/mine/evaluation/evaluation.md"),
    ("evaluate data --predictions -k 20", "Written: runs/evaluation/predictions/sparse.npz"),
    (f"compare {RANKED}/sparse.npz {RANKED}/label-names.npz data --split test", "micro sign test"),
    ("report data --work runs/mine", "Written: runs/report.html"),
    ("report data --work runs/mine --overwrite", "Written: runs/report.html"),
    ("describe --all --output runs/mine/labels.jsonl", "a line for each label"),
    ("predict --input docs.jsonl --output out.jsonl -k 10", "2 documents: 2 answered"),
    ("predict --input data/test.jsonl --output test.jsonl", "20 documents: 20 answered"),
    ("train data --work runs/other --seed 7 --config small.yaml", "Version 2"),
    ("registry list", "*"),
    ("registry show", "default scorer:  sparse"),
    ("registry verify 1", "Version 1 is whole"),
    ("registry activate 1", "Current is version 1 (before: 2)"),
    ("registry rollback", "Current is version 2 (before: 1)"),
    ("train data --config sparse --work runs/third --seed 8 --no-activate", "Version 3"),
    ("registry activate 2", "Current is version 2 (before: 2)"),
    ("registry activate 1", "Current is version 1 (before: 2)"),
    ("registry rollback", "Current is version 2 (before: 1)"),
    ("registry remove 1", "Version 1 is removed."),
    ("key ops", "Line, for the service: ops:"),
]


def test_the_steps_of_the_readmes_work_one_after_the_other(place, run):
    shutil.rmtree("registry")
    Path("small.yaml").write_text("scorers: [sparse]\ndescriptions: {num_keywords: 5}\n")
    for words, told in STEPS:
        outcome = run(*words.split())
        assert outcome.status == 0, (words, outcome)
        assert told in outcome.out, (words, outcome)
    assert Registry("registry").versions() == [2, 3]


def answers(path: str) -> list[dict[str, object]]:
    content = Path(path).read_bytes()
    text = gzip.decompress(content) if path.endswith(".gz") else content
    return [json.loads(line) for line in text.splitlines()]


TEXTS = ["imports of fish\nand of olive oil", "olive oil"]
FILES = {
    "corpus.jsonl": "".join(
        json.dumps({"text": text, "labels": ["1"], "date": "1999"}) + "\n" for text in TEXTS
    ),
    "titled.jsonl": '{"uid": "a", "title": "imports of fish", "content": "and of olive oil"}\n'
    '{"uid": "b", "title": null, "content": "olive oil"}\n',
    "repository.json": '{"uid": "a", "title": "imports of fish", "content": "and of olive oil", '
    '"target_ind": [3]}\n{"uid": "b", "title": "olive oil", "content": "", "target_ind": []}\n',
    "marked.jsonl": "\ufeff" + "".join(json.dumps({"text": text}) + "\n" for text in TEXTS),
    "shop.csv": 'id,text,labels\na,"imports of fish\nand of olive oil",x;y\nb,olive oil,\n',
    "titled.csv": "\ufefftitle,content\nimports of fish,and of olive oil\nolive oil,\n",
    "excel.csv": "sep=;\nDoc_ID;Titel;Inhalt;Labels\na;imports of fish;and of olive oil;x\n"
    "b;;olive oil;\n",
    "abstracts.jsonl": '{"doc_id": "a", "title": "imports of fish", "subjects": ["x"], '
    '"abstract": "and of olive oil"}\n{"doc_id": "b", "abstract": "olive oil", "subjects": []}\n',
    "short.tsv": "imports of fish and of olive oil\t<http://x/1> <http://x/2>\nolive oil\n",
    "lines.txt": "imports of fish and of olive oil\nolive oil\r\n",
}


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("name", FILES)
def test_predict_reads_what_training_reads_and_plain_text(place, run, name, suffix):
    content = FILES[name].encode()
    Path(name + suffix).write_bytes(gzip.compress(content) if suffix else content)
    outcome = run("predict", "--input", name + suffix, "--output", f"out{suffix}")
    assert (outcome.status, "2 documents: 2 answered" in outcome.out) == (0, True), outcome
    has_labels = any(x in FILES[name] for x in ("abels", "target_ind", "subjects", "http"))
    assert outcome.err.count("labels, which are left out") == has_labels
    texts = [x.replace("\n", " ") for x in TEXTS] if name in {"lines.txt", "short.tsv"} else TEXTS
    found = answers(f"out{suffix}")
    assert [x["labels"] for x in found] == labels_of(run, texts)
    if name in {"titled.jsonl", "repository.json", "shop.csv", "excel.csv", "abstracts.jsonl"}:
        assert [x["id"] for x in found] == ["a", "b"]


def labels_of(run: Callable[..., Any], texts: list[str]) -> list[object]:
    """Return the labels of texts as JSON lines."""
    plain = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    Path("plain.jsonl").write_text(plain)
    run("predict", "--input", "plain.jsonl", "--output", "plain-out", "--overwrite")
    return [x["labels"] for x in answers("plain-out")]


def write_folder(name: str) -> None:
    """Write `TEXTS` as a folder in one of the forms that training reads."""
    folder = Path(name)
    folder.mkdir()
    if name.startswith("full texts"):
        for key, text in zip("ab", TEXTS, strict=True):
            (folder / f"{key}.txt").write_text(text)
        if "subjects" in name:
            (folder / "a.tsv").write_text("<http://x/1>\tfish\n")
    elif name == "Arrow":
        columns = {"id": ["a", "b"], "title": ["imports of fish", None], "label": [0, 1]}
        table = pa.table({**columns, "content": ["and of olive oil", "olive oil"]})
        for number in range(2):
            path = folder / f"data-0000{number}-of-00002.arrow"
            with pa.ipc.new_stream(path, table.schema) as out:
                out.write_table(table.slice(number, 1))
    else:
        (folder / "tst.json").write_text(FILES["repository.json"])


@pytest.mark.parametrize(
    "name", ["full texts", "full texts with subjects", "Arrow", "Extreme Classification"]
)
def test_predict_reads_the_folders_that_training_reads(place, run, name):
    write_folder(name)
    outcome = run("predict", "--input", name, "--output", "out")
    assert (outcome.status, "2 documents: 2 answered" in outcome.out) == (0, True), outcome
    found = answers("out")
    assert [x["labels"] for x in found] == labels_of(run, TEXTS)
    assert [x["id"] for x in found] == ["a", "b"]
    table = run("predict", "--input", name, "--output", "out.csv")
    assert table.status == 0 and Path("out.csv").read_text("utf-8-sig").count("\n1,b,") == 1


def test_predict_joins_a_title_of_parquet(place, run):
    columns = {"title": ["imports of fish", None], "content": ["and of olive oil", "olive oil"]}
    parquet.write_table(pa.table(columns), "in.parquet")
    outcome = run("predict", "--input", "in.parquet", "--output", "out.parquet")
    assert outcome.status == 0 and "The text is that of title, content." in outcome.err, outcome
    found = parquet.read_table("out.parquet").column("label_ids").to_pylist()
    assert found == [[x["id"] for x in labels] for labels in labels_of(run, TEXTS)]


def test_a_run_in_which_every_line_failed_has_failed(place, run):
    Path("bad.jsonl").write_text('{"text": ""}\n')
    outcome = run("predict", "--input", "bad.jsonl", "--output", "out")
    assert outcome.status == 1
    assert "all 1 of 1 document of 'bad.jsonl' could not be answered" in outcome.err
    assert "; the first: the one with index 0: " in outcome.err
    assert len(answers("out")) == 1
